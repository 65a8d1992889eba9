"""The words that start a box, and its script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from cannery.sandbox.box import NOT_MADE, Box, Mount, box_command, box_script

SCRATCH = PurePath("/cache/boxes/x")
LAYERS = tuple(PurePath(f"/cache/unpacked/{number:064x}") for number in range(70))
BOX = Box(
    LAYERS[:3],
    ("python3", "-c", 'print("it\'s")'),
    upper=PurePath("/cache/a b/upper"),
    binds=(Mount("/src/it's", "/run/cannery/x", read_only=True), Mount("/out", "/out")),
    tmpfs=("/run",),
    env={"PATH": "/opt/venv/bin", "WORDS": "a 'b' $c"},
    user=(1000, 0),
    workdir="/work",
    network=True,
    devices=("/dev/davinci0",),
    shm_size=1 << 30,
)


def test_shellcheck_has_nothing_to_say() -> None:
    for box in (BOX, Box(LAYERS, ("true",))):
        program = Path(sys.executable).with_name("shellcheck")
        # $ in a value is meant as it is.
        command = (program, "--shell=sh", "--exclude=SC2016", "-")
        done = subprocess.run(command, input=box_script(box, SCRATCH), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


def test_command_is_at_the_end_as_it_was_given() -> None:
    words = box_command(BOX, SCRATCH)
    assert words[-len(BOX.command) :] == BOX.command
    assert words[: words.index("sh")] == ("setpriv", "--pdeathsig", "KILL", "--")
    assert "--kill-child" in words


@pytest.mark.parametrize(("network", "namespaces"), [(True, 0), (False, 1)])
def test_own_network_namespace_only_without_the_hosts(network: bool, namespaces: int) -> None:
    box = Box(LAYERS[:1], ("true",), network=network)
    assert box_command(box, SCRATCH).count("--net") == namespaces
    assert ("resolv.conf" in box_script(box, SCRATCH)) is network


def options(box: Box) -> str:
    """The line that mounts the overlay."""
    return next(line for line in box_script(box, SCRATCH).splitlines() if line.startswith("mount -t overlay"))


def test_options_of_many_layers_are_short() -> None:
    """The kernel takes 4,096 bytes."""
    line = options(Box(LAYERS * 4, ("true",)))
    assert len(line) < 500
    assert line.endswith(f"lowerdir={':'.join(map(str, range(70)))} overlay root")


def test_highest_layer_is_first_and_one_that_is_there_twice_is_the_higher() -> None:
    a, b, c = LAYERS[:3]
    script = box_script(Box((a, b, a, c), ("true",)), SCRATCH)
    (links,) = (line for line in script.splitlines() if "/cache/unpacked" in line)
    assert links.endswith(f" {c} {a} {b}")


def test_failure_to_make_a_box_has_its_own_code() -> None:
    assert f"trap 'exit {NOT_MADE}' EXIT" in box_script(BOX, SCRATCH)
