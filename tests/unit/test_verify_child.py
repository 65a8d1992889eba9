"""Children of the verify script: what they get where nothing can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifying.child import scratch

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_child_has_a_folder_for_temporary_files_on_a_read_only_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = str(tmp_path)
    monkeypatch.setattr("verifying.child.os.access", lambda path, _mode: path == shared)
    assert scratch({}, shared) == {"TMPDIR": shared, "HOME": shared}
    assert scratch({"TMPDIR": "/nowhere"}, shared)["TMPDIR"] == shared
    assert scratch({"TMP": shared}, "/other") == {}, "the environment names one that can be written"
    assert scratch({}, "/other") == {}, "and where there is none at all, nothing is promised"


def test_a_child_keeps_the_usual_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifying.child.os.access", lambda path, _mode: path in {"/var/tmp", "/dev/shm"})
    assert scratch({}) == {}
