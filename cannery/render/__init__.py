"""A plan as a folder for BuildKit: Dockerfile, bake file, group files, and what goes into the image beside packages."""
