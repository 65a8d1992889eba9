"""Source trees as values: which commit, release or folder of the user's a build wants, and what its files ask for."""
