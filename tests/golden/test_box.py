"""The script of a box with all that it may have, in tests/golden/box; `make goldens` rewrites it."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from cannery.sandbox.box import Box, Mount, box_script
from tests.golden.test_render import compare

if TYPE_CHECKING:
    import pytest

GOLDENS = Path(__file__).parent / "box"
BOX = Box(
    (PurePath("/cache/unpacked/base"), PurePath("/cache/unpacked/system")),
    ("python3", "--version"),
    upper=PurePath("/cache/boxes/x/upper"),
    binds=(Mount("/out/it's here", "/run/cannery/x", read_only=True), Mount("/out", "/out")),
    tmpfs=("/run",),
    env={"PATH": "/opt/venv/bin:/bin", "WORDS": "a 'b' $c"},
    user=(1000, 0),
    workdir="/workspace",
    network=True,
    devices=("/dev/davinci0",),
    shm_size=1 << 30,
)


def test_script_is_its_golden(request: pytest.FixtureRequest) -> None:
    script = box_script(BOX, PurePath("/cache/boxes/x/mounts")).replace(sys.executable, "python3")
    if request.config.getoption("--rewrite-goldens"):
        GOLDENS.mkdir(exist_ok=True)
        (GOLDENS / "box.sh").write_text(script, encoding="utf-8")
    compare({"box.sh": script}, GOLDENS)
