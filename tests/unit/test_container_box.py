"""A container as a box: what docker's options become without an engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from cannery.catalog.catalog import ImageUser
from cannery.run.container import Container, RunAs, RunRequest, container_box
from cannery.sandbox.box import Mount

REQUEST = RunRequest(image="stack:1", shm_size="16g", command=("python", "-c", "1"))
DRIVER = (Mount("/usr/local/dcmi", "/usr/local/dcmi"), Mount("/opt/smi", "/usr/local/bin/npu-smi", read_only=True))
CONTAINER = Container(
    request=REQUEST,
    cards=1,
    devices=("/dev/davinci0", "/dev/davinci_manager"),
    group=None,
    driver=DRIVER,
    visible=(("ASCEND_RT_VISIBLE_DEVICES", "0"),),
    env=(("MINE", "1"), ("OF_THIS_SHELL", None)),
    notes=(),
)
CONFIG = {"Env": ["PATH=/opt/venv/bin:/bin", "MINE=of the image", "A=b=c"], "WorkingDir": "/opt/verl"}
LOWERS = (PurePosixPath("/layers/base"), PurePosixPath("/layers/wheels"))


def test_a_box_has_what_the_container_has() -> None:
    box = container_box(CONTAINER, LOWERS, CONFIG)
    assert box.lowers == LOWERS
    assert box.command == ("python", "-c", "1")
    assert box.devices == ("/dev/davinci0", "/dev/davinci_manager")
    assert box.binds == (
        Mount("/usr/local/dcmi", "/usr/local/dcmi", read_only=False),
        Mount("/opt/smi", "/usr/local/bin/npu-smi", read_only=True),
    )
    assert not box.network
    assert box.upper is None
    assert box.shm_size == 16 << 30
    assert box.workdir == "/opt/verl"
    assert box.user == (0, 0)


def test_the_image_s_variables_are_under_the_container_s() -> None:
    env = {"PATH": "/opt/venv/bin:/bin", "MINE": "1", "A": "b=c", "ASCEND_RT_VISIBLE_DEVICES": "0"}
    assert container_box(CONTAINER, LOWERS, CONFIG).env == env


def test_an_image_s_user_is_the_box_s() -> None:
    user = ImageUser(name="ma-user", uid=1000, gid=1001)
    named = replace(CONTAINER, request=replace(REQUEST, user=user, workdir="/tmp"))
    box = container_box(named, LOWERS, {})
    assert box.user == (1000, 1001)
    assert box.workdir == "/tmp"
    assert box.env == {"MINE": "1", "ASCEND_RT_VISIBLE_DEVICES": "0"}


def test_another_user_of_the_command_line_is_the_box_s() -> None:
    asked = replace(REQUEST, user=ImageUser(name="ma-user", uid=1000, gid=1001), run_as=RunAs("7:8", 7, 8))
    assert container_box(replace(CONTAINER, request=asked), LOWERS, {}).user == (7, 8)


def test_sizes_are_those_that_docker_reads() -> None:
    sizes = {"1": 1, "64k": 64 << 10, "512M": 512 << 20, "2G": 2 << 30}
    for text, size in sizes.items():
        container = replace(CONTAINER, request=replace(REQUEST, shm_size=text))
        assert container_box(container, LOWERS, {}).shm_size == size


def test_a_folder_of_a_volume_is_mounted() -> None:
    container = replace(CONTAINER, driver=(), request=replace(REQUEST, volumes=("/data:/mnt:ro", "/d:/d", "named:/x")))
    assert container_box(container, LOWERS, {}).binds == (
        Mount("/data", "/mnt", read_only=True),
        Mount("/d", "/d", read_only=False),
    )
