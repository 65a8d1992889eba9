"""The order of sources, their submodules, releases and patches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from factories import (
    ENGINE,
    LIBRARY,
    PATCHER,
    PLUGIN,
    catalog,
    package,
    source_components,
    source_profile,
    source_recipe,
    subject,
)

from cannery.catalog.component import FromSource, parse_component
from cannery.compat.rules import RULES, check_recipe
from cannery.compat.rules.components import order, patches, releases
from cannery.compat.subject import Finding, in_order
from cannery.vocab import Severity

if TYPE_CHECKING:
    from cannery.catalog.component import Component
    from cannery.recipe.recipe import Recipe


def arranged(*names: str) -> Recipe:
    """The profile `sources` with those of its components, in that order."""
    pins = {pin.name: pin.model_dump(exclude_defaults=True) for pin in source_profile().components}
    return source_recipe(components=[pins[name] for name in names])


def changed(name: str, **changes: Any) -> dict[str, Component]:  # noqa: ANN401 - YAML
    value = source_components()[name].model_dump(exclude_defaults=True)
    return {**catalog().components, name: parse_component({**value, **changes})}


def test_the_made_up_sources_have_no_finding() -> None:
    assert check_recipe(source_recipe(), catalog()) == ()
    assert len(RULES) == len({*RULES})


# Order


def test_each_after_what_it_is_built_upon() -> None:
    assert list(order(subject(source_recipe()))) == []
    assert list(order(subject(arranged("torch-npu", "kernels", "torch", "engine", "plugin")))) == []


def test_what_stands_below_a_component_that_needs_it_in_place() -> None:
    found = arranged("kernels", "plugin", "torch", "torch-npu", "engine")
    why, fix = "images/components/{}.yaml: after", "move {} above {} in images/profiles/sources.yaml"
    assert in_order(order(subject(found))) == tuple(
        Finding(
            Severity.ERROR,
            "order",
            f"{before} is below {name}, which is installed with it in place",
            why.format(name),
            fix.format(before, name),
        )
        for before, name in (("engine", "plugin"), ("torch", "plugin"), ("torch-npu", "kernels"))
    )


def test_a_source_that_is_missing_altogether() -> None:
    found = arranged("torch", "torch-npu", "plugin")
    assert list(order(subject(found))) == [
        Finding(
            Severity.ERROR,
            "order",
            "plugin is installed with engine in place, and the profile has no engine",
            "images/components/plugin.yaml: after",
            "add engine above plugin in images/profiles/sources.yaml",
        )
    ]


def test_wheels_that_the_profile_does_not_name_may_come_in_by_the_lock() -> None:
    found = arranged("engine", "plugin")
    assert list(order(subject(found))) == []
    assert list(order(subject(found, amd64=(package("torch"),)))) == []
    (finding,) = order(subject(found, amd64=(package("ray"),)))
    assert finding.what == "plugin is installed with torch in place, and the profile has no torch"


# Submodules and releases


@pytest.mark.parametrize(
    ("reason", "why"), [({}, "made from tag v0.11.0"), ({"reason": "no git host here"}, "no git host here")]
)
def test_a_release_in_a_commits_place_is_a_note(reason: dict[str, str], why: str) -> None:
    pins = [{"name": "torch", "version": "2.9.0"}, {"name": "engine", "release": "0.11.0", **reason}]
    (finding,) = releases(subject(source_recipe(components=pins)))
    assert finding == Finding(
        Severity.NOTE,
        "release",
        "engine 0.11.0 is a release from the package index, no commit",
        why,
        f"known commits of that version: {ENGINE}",
    )
    assert list(releases(subject(source_recipe()))) == []


def test_a_note_on_a_release_offers_no_commit_of_another_version() -> None:
    found = source_recipe(components=[{"name": "torch", "version": "2.9.0"}, {"name": "engine", "release": "0.11.0"}])
    torch, engine = found.chosen
    assert isinstance(engine.component, FromSource)
    others = {pin: one for pin, one in engine.component.revisions.items() if one.version != "0.11.0"}
    assert others
    engine = replace(engine, component=engine.component.model_copy(update={"revisions": others}))
    (finding,) = releases(subject(replace(found, chosen=(torch, engine))))
    assert (finding.code, finding.fix) == ("release", "")


# Patches


def patched(*library: dict[str, str]) -> Recipe:
    return source_recipe(components=[*library, {"name": "patcher", "commit": PATCHER}])


def test_patches_on_the_commit_that_they_are_for() -> None:
    assert list(patches(subject(patched({"name": "library", "commit": LIBRARY})))) == []
    assert list(patches(subject(patched()))) == [], "what is patched is not there"


def test_patches_on_another_commit() -> None:
    """P12 (verl-project/verl pull 6466)."""
    assert list(patches(subject(patched({"name": "library", "commit": ENGINE})))) == [
        Finding(
            Severity.ERROR,
            "patches",
            f"library is at commit {ENGINE}, the patches of patcher are for {LIBRARY}",
            "images/components/patcher.yaml: its summary file",
            "pin library to that commit, or take a commit of patcher that is for this one",
        )
    ]


def test_patches_on_a_release_are_a_warning() -> None:
    expected = Finding(
        Severity.WARNING,
        "patches",
        f"the patches of patcher are for library at commit {LIBRARY}, the set has release 4.0",
        "on another tree they fail, or are silently skipped; images/components/patcher.yaml: its summary file",
        "take library at that commit in images/profiles/sources.yaml",
    )
    assert list(patches(subject(patched({"name": "library", "release": "4.0"})))) == [expected]
    locked = subject(patched(), amd64=(package("the-library", "4.0"),))
    assert list(patches(locked)) == [expected], "a wheel that the lock brings has the same distribution"


def test_a_component_of_another_name_that_brings_the_same_distribution_is_what_is_patched() -> None:
    twin = source_components()["library"]
    data = catalog(components={**catalog().components, "twin": twin})
    pins = [{"name": "twin", "commit": ENGINE}, {"name": "patcher", "commit": PATCHER}]
    (finding,) = patches(subject(source_recipe(found=data, components=pins), data))
    assert finding.what == f"twin is at commit {ENGINE}, the patches of patcher are for {LIBRARY}"
    assert PLUGIN not in finding.what
