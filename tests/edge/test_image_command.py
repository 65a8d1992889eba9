"""Parts of `build.py image` that need no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from factories import plan

from cannery.commands.image import _whole_wheels
from cannery.core.errors import BuildFailedError
from cannery.core.words import Arch
from cannery.edge.context import Context
from cannery.edge.wheel_store import is_there, store_path

if TYPE_CHECKING:
    from pathlib import Path


def test_a_wheel_that_rotted_on_the_disk_is_named_and_removed(tmp_path: Path) -> None:
    context, made = Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False), plan()
    rotten = made.lock.packages[0]
    path = store_path(rotten, context.cache)
    path.parent.mkdir(parents=True)
    with path.open("wb") as stream:
        stream.truncate(rotten.size)
    assert is_there(rotten, context.cache)
    with pytest.raises(BuildFailedError) as caught, _whole_wheels(context, made):
        raise BuildFailedError("exit code 2", hint="this stage alone: …")
    assert rotten.file in caught.value.hint
    assert not is_there(rotten, context.cache)


def test_another_failure_keeps_its_own_hint(tmp_path: Path) -> None:
    context = Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)
    with pytest.raises(BuildFailedError) as caught, _whole_wheels(context, plan()):
        raise BuildFailedError("exit code 2", hint="this stage alone: …")
    assert caught.value.hint == "this stage alone: …"
