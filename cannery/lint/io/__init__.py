"""Reading of the files that `lint-run` judges."""
