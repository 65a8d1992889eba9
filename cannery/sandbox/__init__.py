"""Boxes: commands on the layers of an image, without an engine; and the build stages that run in them.

`io/` starts boxes, finds out whether this host can, and makes the stages.
"""
