"""What kind of failure uv tells of. The texts are a real uv's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import uv

from cannery.lock.uv import UNSATISFIABLE, is_of_network, os_error

TEXTS = Path(__file__).parent / "data/uv_reasons"
TOML = """\
error: Failed to parse: uv.toml
  cause: TOML parse error at line 4, column 28
           |
         4 | {line}
           |                            ^^^^^^
         no such comparison operator ">>", must be one of ~= == != <= >= < > ===
"""
REFUSED = """\
error: Request failed after 3 retries in 5.5s
  cause: Failed to fetch: http://127.0.0.1:9/s/foo/
  cause: error sending request for url (http://127.0.0.1:9/s/foo/)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
FULL = """\
error: Failed to fetch: https://index.example/simple/foo/
  cause: failed to write to file `/cache/uv/simple-v18/foo.rkyv`: No space left on device (os error 28)
"""
NO_CACHE = """\
error: Failed to initialize cache at `/cache/uv`
  cause: failed to create directory `/cache/uv`: Permission denied (os error 13)
"""


def kind(stderr: str) -> int:
    """The system's error number, else whether an index failed."""
    return os_error(stderr) or is_of_network(stderr)


@pytest.mark.parametrize(
    ("stderr", "found"),
    [
        (REFUSED, True),
        ("error: HTTP status client error (429 Too Many Requests) for url (x)\n", True),
        ("error: Failed to fetch: `file:///srv/x`\n  cause: it does not exist\n", True),
        (FULL, errno.ENOSPC),
        (NO_CACHE, errno.EACCES),
        ("error: Read-only file system (os error 30)\n", errno.EROFS),
        (TOML.format(line='constraint-dependencies = ["x>>2"]'), False),
        (TOML.format(line='exclude-newer = "2026-13-01"'), False),
        (TOML.format(line="frob = 1"), False),
        ("error: unexpected argument '--nonsense' found\n\nUsage: uv pip compile\n", False),
        ("error: Failed to build `thing==1.0`\n", False),
        ("", False),
    ],
)
def test_kinds(stderr: str, found: int) -> None:
    assert kind(stderr) == found


@pytest.mark.parametrize("path", sorted(TEXTS.iterdir()), ids=lambda path: path.stem)
def test_only_a_real_explanation_is_unsolved(path: Path) -> None:
    text = path.read_text()
    assert (UNSATISFIABLE in text, kind(text)) == (True, False)


def call(folder: Path, *options: str) -> int:
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.11"\ndependencies = ["foo"]\n'
    )
    command = (uv.find_uv_bin(), "pip", "compile", "pyproject.toml", "--offline", "--python", sys.executable, *options)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode > 0
    return kind(done.stderr)


def test_the_words_of_the_uv_that_is_here(tmp_path: Path) -> None:
    """Its texts may change with its release: these are the ones that the exit code hangs on."""
    cache = tmp_path / "cache"
    cache.write_text("a file")
    (tmp_path / "uv.toml").write_text("")
    settings = ("--config-file", "uv.toml")
    assert call(tmp_path, *settings, "--cache-dir", str(cache)) == errno.EEXIST
    assert call(tmp_path, *settings, "--nonsense") == 0
    (tmp_path / "uv.toml").write_text("frob = 1\n")
    assert call(tmp_path, *settings) == 0
    (tmp_path / "uv.toml").write_text('constraint-dependencies = ["x>>2"]\n')
    assert call(tmp_path, *settings) == 0
