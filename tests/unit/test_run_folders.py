"""The user's own folders in a container: caches of models (case U03), and working trees over those of the image."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import catalog, inputs, source_components, source_recipe

from cannery.catalog.image_user import ImageUser
from cannery.errors import UsageError
from cannery.plan.make import make_plan
from cannery.plan.patched import PatchedBy
from cannery.run.mounts import Mount, dev_mounts, dev_names, dev_notes, user_caches
from cannery.vocab import Install

if TYPE_CHECKING:
    from cannery.plan.plan import Plan

# engine and kernels are wheels, plugin is editable.
PLAN = make_plan(source_recipe(), inputs(source_recipe()))


def linked() -> Plan:
    """A plan whose plugin has a link into another tree."""
    parts = source_components()
    parts["plugin"] = parts["plugin"].model_copy(update={"tree_links": {"engine": "engine/engine"}})
    parts["engine"] = parts["engine"].model_copy(update={"install": Install.EDITABLE})
    found = source_recipe(found=catalog(components={**catalog().components, **parts}))
    return make_plan(found, inputs(found))


def test_a_tree_is_mounted_over_the_images() -> None:
    assert dev_mounts(PLAN, {"plugin": "/home/me/plugin"}) == (Mount("/home/me/plugin", "/opt/src/plugin"),)
    assert dev_mounts(PLAN, {}) == ()


def test_what_is_no_source_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="--dev plugn: no source of sources") as caught:
        dev_names(PLAN.recipe, {"plugn": "/x"})
    assert "plugin" in caught.value.hint


def test_a_source_is_named_by_component_or_distribution() -> None:
    parts = source_components()
    parts["plugin"] = parts["plugin"].model_copy(update={"package": "the-plugin"})
    found = source_recipe(found=catalog(components={**catalog().components, **parts}))
    assert dev_names(found, {"the-plugin": 1, "engine": 2}) == {"plugin": 1, "engine": 2}


@pytest.mark.parametrize("name", ["engine", "kernels"])
def test_a_wheel_has_no_tree(name: str) -> None:
    with pytest.raises(UsageError, match=f"--dev {name}: the image has no tree of it") as caught:
        dev_mounts(PLAN, {name: "/x"})
    assert caught.value.hint == f"SRC_{name}=/x builds it in; trees of this image: plugin"


def test_patches_of_a_covered_tree_are_noted_as_not_in_force() -> None:
    mounts = dev_mounts(PLAN, {"plugin": "/home/me/plugin"})
    assert tuple(dev_notes(PLAN, mounts)) == ()
    steps = (replace(step, patched_by=(PatchedBy("verl-npu", "key"),)) for step in PLAN.sources)
    (note,) = dev_notes(replace(PLAN, sources=tuple(steps)), mounts)
    assert note.startswith("/opt/src/plugin is /home/me/plugin: its patches count as not in force until checked")
    assert "/opt/cannery/patched.py" in note


def test_a_hidden_link_is_named() -> None:
    made = linked()
    notes = tuple(dev_notes(made, dev_mounts(made, {"plugin": "/p", "engine": "/e"})))
    assert len(notes) == 1
    assert notes[0].startswith("/opt/src/plugin/engine is hidden, a link to /opt/src/engine/engine")


def test_the_users_own_folders_are_those_of_the_images_user() -> None:
    assert user_caches({"HOME": "/home/me"}) == (
        Mount("/home/me/.cache/huggingface", "/root/.cache/huggingface"),
        Mount("/home/me/.cache/modelscope", "/root/.cache/modelscope"),
    )
    assert {m.target for m in user_caches({"HOME": "/root"}, ImageUser(name="HwHiAiUser"))} == {
        "/var/cache/cannery/huggingface",
        "/var/cache/cannery/modelscope",
    }


def test_folders_that_the_user_keeps_elsewhere() -> None:
    env = {"HOME": "/home/me", "XDG_CACHE_HOME": "/big/cache", "HF_HOME": "/models/hf/"}
    assert [m.source for m in user_caches(env)] == ["/models/hf", "/big/cache/modelscope"]


@pytest.mark.parametrize("env", [{}, {"HOME": ""}, {"HOME": "relative"}, {"XDG_CACHE_HOME": "cache"}])
def test_no_home_no_folders(env: dict[str, str]) -> None:
    assert user_caches(env) == ()


def test_a_named_folder_needs_no_home() -> None:
    assert user_caches({"MODELSCOPE_CACHE": "/models/ms", "HF_HOME": "hf"}) == (
        Mount("/models/ms", "/root/.cache/modelscope"),
    )
