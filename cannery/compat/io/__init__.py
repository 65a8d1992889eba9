"""What the package indexes have for the solver."""
