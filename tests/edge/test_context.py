"""What is read once at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from cannery.context import read_context
from cannery.errors import UnableError, UsageError
from cannery.util.io.pip_settings import PipSettings, pip_files


def test_a_wheelhouse_is_looked_at_before_pip_s_own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "cannery.util.io.pip_settings.read_pip_settings", lambda *_: PipSettings(find_links=("/theirs",))
    )
    assert read_context(tmp_path, {"wheelhouse": str(tmp_path)}).pip.find_links == (str(tmp_path), "/theirs")
    assert read_context(tmp_path).pip.find_links == ("/theirs",)


def test_a_wheelhouse_that_is_no_folder_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="WHEELHOUSE"):
        read_context(tmp_path, {"wheelhouse": str(tmp_path / "absent")})


def test_a_user_without_a_name_and_without_home_is_asked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "CANNERY_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(UnableError, match="has no name on this host, and HOME is not set") as caught:
        read_context(tmp_path)
    assert "CANNERY_CACHE" in caught.value.hint
    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path / "cache"))
    assert read_context(tmp_path).cache == tmp_path / "cache"
    assert Path("/.pip/pip.conf") in pip_files({})


def test_templates_leave_out_what_tools_and_editors_leave(tmp_path: Path) -> None:
    for name in ("a.j2", "tools/b.py", ".mypy_cache/c", "tools/__pycache__/d.pyc", "e.j2~", "f.orig"):
        path = tmp_path / "templates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    shared = {"tools/common/bytecode.py", "tools/common/wheel_files.py"}  # the host's own modules
    assert read_context(tmp_path).templates.keys() - shared == {"a.j2", "tools/b.py"}
