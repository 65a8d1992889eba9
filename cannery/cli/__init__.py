"""The command line: parser and options, running one command, errors and exit codes, and what the terminal gets."""
