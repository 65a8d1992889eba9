"""The user's own folders in a container: caches of models (case U03)."""

from __future__ import annotations

import pytest

from cannery.catalog.catalog import ImageUser
from cannery.run.mounts import user_caches
from cannery.sandbox.box import Mount


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
