"""Prove an image: run the verify script in a container, print each check as it ends, keep what has passed."""
