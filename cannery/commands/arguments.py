"""What the command line says, as values of the pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.recipe.recipe import Options

if TYPE_CHECKING:
    import argparse


def options_of(arguments: argparse.Namespace) -> Options:
    """Return what the command line says about the target."""
    return Options(
        cann=arguments.cann,
        chip=arguments.chip,
        os=arguments.os,
        python=arguments.python,
        arch=arguments.arch,
        base=arguments.base,
        pins=tuple(word for text in getattr(arguments, "pin", ()) for word in text.split()),
        force=getattr(arguments, "force", False),
        sources=getattr(arguments, "sources", None),
        as_documented=getattr(arguments, "as_documented", False),
    )
