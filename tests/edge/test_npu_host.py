"""What `run` and `verify` see of a host: closed folders, a driver that is installed elsewhere, links."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_trees import ASCEND, Tree, healthy_a2

from cannery.catalog.io.read import load_catalog
from cannery.host.facts import full_model, lacking, wanted_paths
from cannery.host.io.look import read_host
from cannery.run.container import Container, RunRequest, docker_arguments, make_container

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.host.facts import HostNpus

A2 = load_catalog(Path(__file__).resolve().parent.parent.parent / "images").chips["910b"]
NOBODY = 65534
LIB64, INFO = "/usr/local/Ascend/driver/lib64", "/usr/local/Ascend/driver/version.info"


@contextmanager
def as_nobody() -> Iterator[None]:
    """Look as a user who is not root."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


@pytest.fixture
def tree() -> Iterator[Tree]:
    """A healthy host in a folder that every user may enter, which `tmp_path` is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield healthy_a2(Path(folder))


def seen(tree: Tree) -> HostNpus:
    return read_host(wanted_paths(A2), tree.root)


def started(host: HostNpus) -> Container:
    return make_container(RunRequest("i", "1g"), A2, host)


def test_a_driver_that_this_user_cannot_read_is_mounted_with_a_note(tree: Tree) -> None:
    """The driver's installer gives it to HwHiAiUser's group alone, unless it installs for all."""
    closed = tree.root / ASCEND / "driver"
    closed.chmod(0o700)
    with as_nobody():
        host = seen(tree)
    closed.chmod(0o755)
    assert host.hidden == {LIB64, INFO}
    command = started(host)
    for path in (LIB64, INFO):
        assert f"type=bind,source={path},target={path},readonly" in docker_arguments(command), (
            "-v would make a folder of it"
        )
    assert "type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly" in docker_arguments(command)
    (note,) = command.notes
    assert note.startswith(f"you cannot read {LIB64}, {INFO}: mounted anyway; docker reports what is missing")
    assert "`build.py doctor` as root" in note
    assert lacking(A2, host) == ()
    assert seen(tree).hidden == frozenset(), "and open to root"


def test_a_closed_npu_smi_is_not_guessed_at(tree: Tree) -> None:
    closed = tree.root / "usr/local/sbin"
    closed.chmod(0o700)
    with as_nobody():
        host = seen(tree)
    closed.chmod(0o755)
    assert host.npu_smi is None
    assert started(host).notes == ("you cannot read /usr/local/sbin/npu-smi: not mounted",)


def test_a_driver_that_is_installed_elsewhere_is_mounted_where_images_look_for_it(tree: Tree) -> None:
    (tree.root / ASCEND).rename(tree.root / "opt")
    tree.write("etc/ascend_install.info", "Driver_Install_Path_Param=/opt\n")
    host = seen(tree)
    assert host.install == "/opt"
    command = started(host)
    assert command.notes == ()
    for path in ("lib64", "version.info"):
        place = f"/opt/driver/{path}"
        assert f"type=bind,source={place},target=/usr/local/Ascend/driver/{path},readonly" in docker_arguments(command)
        assert f"type=bind,source={place},target={place},readonly" in docker_arguments(command), (
            "where install.info, which is mounted too, names it"
        )
    printed = make_container(RunRequest("i", "1g"), A2, full_model(A2, None, host))
    assert f"type=bind,source=/opt/driver/lib64,target={LIB64},readonly" in docker_arguments(printed)
    (tree.root / "opt/driver/version.info").unlink()
    assert started(seen(tree)).notes == ("this host has no /opt/driver/version.info: not mounted",)


def test_a_driver_folder_that_is_a_link_is_followed_within_the_host(tree: Tree) -> None:
    (tree.root / ASCEND / "driver").rename(tree.root / "data")
    (tree.root / ASCEND / "driver").symlink_to("/data")
    assert started(seen(tree)).notes == ()
    (tree.root / "data").rename(tree.root / "gone")
    assert started(seen(tree)).notes == tuple(f"this host has no {path}: not mounted" for path in (LIB64, INFO))


@pytest.mark.parametrize(
    ("path", "lost"),
    [
        ("usr/local/sbin/npu-smi", "this host has no npu-smi: not mounted"),
        ("usr/local/Ascend/driver/version.info", f"this host has no {INFO}: not mounted"),
        ("etc/ascend_install.info", "this host has no /etc/ascend_install.info: not mounted"),
    ],
)
def test_a_folder_in_place_of_a_file_is_not_mounted(tree: Tree, path: str, lost: str) -> None:
    """W4: docker's -v makes one of a file that is missing."""
    place = tree.root / path
    place.unlink(missing_ok=True)
    place.mkdir(parents=True)
    assert lost in started(seen(tree)).notes


def test_a_folder_in_place_of_a_node_is_no_card(tree: Tree) -> None:
    before = seen(tree).cards
    node = tree.root / f"dev/davinci{before[-1]}"
    node.unlink()
    node.mkdir()
    assert seen(tree).cards == before[:-1]


@pytest.mark.parametrize("there", [("uburma", "ummu"), ("ummu",), ()])
def test_a_950_gives_the_folders_of_nodes_that_it_has(tmp_path: Path, there: tuple[str, ...]) -> None:
    new = load_catalog(Path(__file__).resolve().parent.parent.parent / "images").chips["950"]
    tree = Tree(tmp_path)
    for name in ("davinci0", "davinci_manager", "hisi_hdc", *({"uburma"} - {*there})):
        tree.write(f"dev/{name}", "")  # a file in the place of a folder counts as missing
    for name in there:
        tree.write(f"dev/{name}/node0", "")
    host = read_host(wanted_paths(new), tree.root)
    wanted = [f"/dev/{name}" for name in there]
    made = make_container(RunRequest("i", "1g"), new, host)
    assert made.devices == ("/dev/davinci0", "/dev/davinci_manager", "/dev/hisi_hdc", *wanted)
    assert {*full_model(new, (0,), host).nodes} == {*made.devices}
    assert not {"/dev/uburma", "/dev/ummu"} & full_model(new, None).nodes
    words = docker_arguments(make_container(RunRequest("i", "1g", runtime="ascend"), new, host))
    assert not any("uburma" in word or "ummu" in word for word in words)
