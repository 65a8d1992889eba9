"""Working trees over those of the image."""

from __future__ import annotations

import pytest
from factories import catalog, inputs, source_components, source_recipe

from cannery.core.dev_trees import dev_mounts, dev_notes
from cannery.core.errors import UsageError
from cannery.core.mounts import Mount
from cannery.core.plan import Plan, make_plan
from cannery.core.words import Install

# engine and kernels are wheels, plugin is editable.
PLAN = make_plan(source_recipe(), inputs(source_recipe()))


def linked() -> Plan:
    """A plan whose plugin has a link into another tree."""
    parts = source_components()
    parts["plugin"] = parts["plugin"].model_copy(update={"tree_links": {"engine": "engine/engine"}})
    parts["engine"] = parts["engine"].model_copy(update={"install": Install.EDITABLE})
    found = source_recipe(found=catalog(components={**catalog().components, **parts}))
    return make_plan(found, inputs(found))


def test_a_tree_stands_over_the_images() -> None:
    assert dev_mounts(PLAN, {"plugin": "/home/me/plugin"}) == (Mount("/home/me/plugin", "/opt/src/plugin"),)
    assert dev_mounts(PLAN, {}) == ()


def test_what_is_no_source_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="--dev plugn: no source of sources") as caught:
        dev_mounts(PLAN, {"plugn": "/x"})
    assert "plugin" in caught.value.hint


@pytest.mark.parametrize("name", ["engine", "kernels"])
def test_a_wheel_has_no_tree(name: str) -> None:
    with pytest.raises(UsageError, match=f"--dev {name}: the image has it installed") as caught:
        dev_mounts(PLAN, {name: "/x"})
    assert caught.value.hint == f"SRC_{name}=/x builds it in; trees of this image: plugin"


def test_patches_are_said_to_be_in_force_no_more() -> None:
    (note,) = dev_notes(PLAN, dev_mounts(PLAN, {"plugin": "/home/me/plugin"}))
    assert note.startswith("/opt/src/plugin is /home/me/plugin: patches of the image's own plugin are not in force")
    assert "verify.py" in note


def test_a_hidden_link_is_named() -> None:
    made = linked()
    notes = tuple(dev_notes(made, dev_mounts(made, {"plugin": "/p", "engine": "/e"})))
    assert len(notes) == 3
    assert notes[1].startswith("/opt/src/plugin/engine is hidden, a link to /opt/src/engine/engine")
