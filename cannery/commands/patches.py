"""`patches`: which sets there are, and what they do; port and new are in patch_making."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cannery.commands.arguments import options_of
from cannery.commands.patch_making import new, port
from cannery.errors import ExitCode, FindingsError, UsageError
from cannery.patches.listing import kept_sets
from cannery.pipeline import patch_inputs, planned
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    import argparse

    from cannery.context import Context


def patches(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Run one action of `patches`."""
    return ACTIONS[arguments.action](arguments, context)


def _list(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print every set by component, and which one each profile uses. Nothing is fetched."""
    catalog = context.catalog()
    wanted = arguments.profile
    if wanted is not None and wanted not in catalog.profiles:
        raise UsageError(f"no profile {wanted!r}", hint=did_you_mean(wanted, catalog.profiles))
    found = [one for one in kept_sets(catalog, context.patch_sets) if wanted is None or wanted in one.profiles]
    if context.is_json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return ExitCode.DONE
    for component in dict.fromkeys(one.component for one in found):
        print(component)
        mine = [one for one in found if one.component == component]
        print("\n".join(f"  {one}" for one in mine))
    if not found:
        print(f"no patch set{f' for {wanted}' if wanted else ''}")
    return ExitCode.DONE


def _summary(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print what the patches of a profile change, and where the plugin's own summary differs."""
    from cannery.patches.io.patching import summary
    from cannery.patches.summary import summary_lines

    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
    repo = arguments.repo
    changes, differing, left = summary(plan, patch_inputs(context, catalog, plan), repo)
    if not changes and not left:
        raise FindingsError(f"{plan.recipe.name} has no patches{f' for {repo}' if repo else ''}")
    if context.is_json:
        value = {
            "patches": [asdict(one) for one in changes],
            "left_out": left,
            "differences": [asdict(one) for one in differing],
        }
        print(json.dumps(value, indent=2, ensure_ascii=False))
        return ExitCode.DONE
    print("\n".join(summary_lines(changes)))
    for title, lines in (("Left out", left), ("The plugin's own summary differs", differing)):
        if lines:
            print(f"\n{title}:", *(f"  {line}" for line in lines), sep="\n")
    return ExitCode.DONE


ACTIONS = {"list": _list, "summary": _summary, "port": port, "new": new}
COMMANDS = {"patches": patches}
