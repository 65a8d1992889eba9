"""Whether a plugin's edits are made in an image, and which patches its tree keeps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.against.difference import Difference, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.against.expected import Expected
    from cannery.against.facts import Inventory
    from cannery.catalog.component import Edit
    from cannery.recipe.recipe import ChosenSource

# Patches of one set that are named; the rest is counted.
SHOWN = 8


def patch_differences(expected: Expected, inventory: Inventory) -> Iterator[Difference]:
    """Give the edits that are not made in the trees that are there, and a note of each plugin's patches by name."""
    for plugin in expected.patchers:
        for edit in plugin.component.edits:
            yield from _edit(expected, inventory, plugin, edit)
        yield from _patches(inventory, plugin)


def _edit(expected: Expected, inventory: Inventory, plugin: ChosenSource, edit: Edit) -> Iterator[Difference]:
    target = next((one for one in expected.sources if one.name == edit.component), None)
    place = _file(inventory, target, edit.file) if target else None
    if place is None:
        return  # that the source is missing is said already
    text = inventory.seen.texts[place]
    if edit.imports and not re.search(rf"^\s*(?:import|from)\s+{re.escape(edit.imports)}\b", text, re.MULTILINE):
        yield Difference(
            Kind.PATCH, f"{edit.name} ({plugin.name})", f"import {edit.imports}", f"not in {place}", edit.reason
        )
    if edit.comments_out and re.search(rf"^\s*{re.escape(edit.comments_out)}\s*(?:#|$)", text, re.MULTILINE):
        wanted = f"`{edit.comments_out}` commented out"
        yield Difference(Kind.PATCH, f"{edit.name} ({plugin.name})", wanted, f"in force in {place}", edit.reason)


def _file(inventory: Inventory, target: ChosenSource, file: str) -> str | None:
    """Return where a file of a source stands that the Python in use imports: its tree, else among the packages."""
    one = inventory.distributions.get(target.package)
    places = [path for path in inventory.seen.texts if path.endswith(f"/{file}")]
    roots = [one.tree if one.editable else one.site, one.site] if one else []
    roots += [tree.path for tree in inventory.trees]
    return next((path for root in roots for path in places if root and path.startswith(f"{root}/")), None)


def _patches(inventory: Inventory, plugin: ChosenSource) -> Iterator[Difference]:
    sets = plugin.component.patch_sets
    mark = f"/{sets.folder}/" if sets else ""
    found: dict[str, list[str]] = {}
    for path in sorted(inventory.seen.present):
        if mark and mark in path and path.endswith(".patch"):
            head, _, name = path.rpartition("/")
            found.setdefault(head, []).append(name.removesuffix(".patch"))
    in_force = {p.get("name") for p in (inventory.manifest or {}).get("patches", ())}
    for folder, names in found.items():
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        words = "in force by the manifest" if in_force >= {*names} else "whether they are in force only a run tells"
        yield Difference(Kind.NOTE, f"patches of {plugin.name}", "", f"{len(names)} in {folder}: {shown}", words)
