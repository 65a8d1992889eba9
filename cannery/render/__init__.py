"""Render a plan into a folder for BuildKit: Dockerfile, bake file, group files, and other files of the image."""
