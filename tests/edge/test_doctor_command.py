"""`build.py doctor --root` on made-up host trees, in text and JSON, and the reading of a tree."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import host_trees
import jsonschema
import pytest
from host_trees import Tree, healthy_a2, healthy_a3, without_npu

from cannery import cli
from cannery.commands import doctor as module
from cannery.context import read_context
from cannery.engine.io.find import NoEngineError
from cannery.errors import UnableError
from cannery.host.facts import HostFacts, User
from cannery.host.io import look as host_facts
from cannery.host.io.look import below, read_facts, read_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((ROOT / "docs/doctor-report.schema.json").read_text())
REPORT = "vllm-project/vllm-ascend issue 5468"
UNNAMED = "HCCL between several cards fails for such a user (vllm-project/vllm-ascend issue 9490)"
# What only a running host shows.
UNKNOWN_IN_A_TREE = {"docker.engine", "disk", "npu-smi", "devices.access", "page-size", "shm"}


class Doctor:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def text(self, *words: str) -> tuple[int, str]:
        code = cli.main(("doctor", *words), ROOT)
        said = self.capture.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out + said.err

    def __call__(self, tree: Tree, *words: str) -> tuple[int, dict[str, tuple[str, str, str]]]:
        """The exit code, and {check: (state, message, next)} of the JSON report, which the schema allows."""
        code = cli.main(("doctor", *words, "--root", str(tree.root), "--json"), ROOT)
        report = json.loads(self.capture.readouterr().out)
        jsonschema.validate(report, SCHEMA)
        assert report["root"] == str(tree.root)
        assert report["ok"] is (code == 0)
        assert sum(report["counts"].values()) == len(report["checks"])
        checks = {check["id"]: (check["state"], check["message"], check["next"]) for check in report["checks"]}
        assert len(checks) == len(report["checks"])
        return code, checks


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


def not_ok(checks: dict[str, tuple[str, str, str]], *, but: set[str] = UNKNOWN_IN_A_TREE) -> dict[str, str]:
    return {name: state for name, (state, _, _) in checks.items() if state != "ok" and name not in but}


def test_a_healthy_a2(doctor: Doctor, tmp_path: Path) -> None:
    code, checks = doctor(healthy_a2(tmp_path), "mindspeed-rl")
    assert (code, not_ok(checks)) == (0, {})
    assert checks["devices.cards"][1] == "8 cards: /dev/davinci{0,1,2,3,4,5,6,7}"
    assert checks["chip"][1].startswith("910b, Atlas A2")
    assert checks["driver.version"][1].startswith("25.0.rc1.1 works with CANN 8.1.rc1 (")
    assert checks["driver.asked"][1] == "25.0.rc1.1; mindspeed-rl 2.0.0 asks for 25.0.rc1 or newer"
    assert checks["firmware.version"][1] == "7.7.0.1.231; the driver takes 6.4.0 to 6.4.99, 7.0.0 to 7.7.99"
    assert checks["docker.runtime"][1].startswith(f"ascend, {host_trees.RUNTIME} (for every container")
    assert checks["kernel"][1] == "5.10.0-216.0.0.115.oe2203sp4.aarch64 (openEuler 22.03 (LTS-SP4), arm64)"
    assert {checks[name][0] for name in UNKNOWN_IN_A_TREE} == {"unknown"}


def test_a_healthy_a3(doctor: Doctor, tmp_path: Path) -> None:
    code, checks = doctor(healthy_a3(tmp_path))
    assert (code, not_ok(checks)) == (0, {})
    assert checks["devices.cards"][1].startswith("16 cards")
    assert checks["chip"][1].startswith("a3, Atlas A3")
    assert checks["ranktable"][1] == "/etc/hccl_rootinfo.json, version 1.2"
    assert checks["driver.version"][1] == (
        "25.3.rc1; works with CANN 8.3.rc1, 8.5.0, 8.5.2, 9.0.0, 9.0.1, 9.1.0 (images/drivers.yaml)"
    )


def test_an_a3_is_not_what_an_image_for_a2_is_for(doctor: Doctor, tmp_path: Path) -> None:
    code, checks = doctor(healthy_a3(tmp_path), "mindspeed-rl", "--arch", "amd64")
    assert code == 4
    assert checks["chip"][0] == "error"
    assert checks["chip"][2].startswith("CHIP=a3; ")
    assert doctor(healthy_a3(tmp_path / "b"), "mindspeed-rl", "--chip", "A3", "--arch", "amd64")[0] == 0


def test_a_chip_counts_without_a_profile(doctor: Doctor, tmp_path: Path) -> None:
    """Case W11."""
    code, checks = doctor(healthy_a3(tmp_path), "--chip", "910b")
    assert code == 4
    assert checks["chip"][0] == "error"
    assert doctor(healthy_a3(tmp_path / "b"), "--chip", "a3")[0] == 0


def test_a_driver_that_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.npus(8)
    tree.system()
    code, checks = doctor(tree)
    assert code == 4
    assert not_ok(checks) == dict.fromkeys(("devices.cards", "driver.files", "driver.version"), "error")
    assert checks["devices.cards"][1] == "8 NPUs on the PCI bus, and no /dev/davinciN"
    assert checks["driver.version"][2] == "install the Ascend driver (HDK)"


@pytest.mark.parametrize(
    ("path", "also"),
    [
        ("usr/local/Ascend/driver/version.info", {"driver.files": "error", "driver.version": "error"}),
        ("usr/local/bin/npu-smi", {}),
        ("etc/hccn.conf", {}),
        ("etc/ascend_install.info", {"driver.files": "warning"}),
        ("etc/hccl_rootinfo.json", {}),
        ("dev/davinci_manager", {"devices.managers": "error"}),
    ],
)
def test_a_folder_in_place_of_a_file(doctor: Doctor, tmp_path: Path, path: str, also: dict[str, str]) -> None:
    """W4: docker's -v makes one of a file that is missing, and existence alone was ok."""
    tree = healthy_a2(tmp_path)
    (tree.root / path).unlink(missing_ok=True)
    (tree.root / path).mkdir(parents=True)
    code, checks = doctor(tree)
    assert (code, not_ok(checks)) == (4, {"driver.folders": "error", **also})
    assert checks["driver.folders"][2].startswith(f"rmdir /{path}; ")


def test_a_driver_that_is_too_old(doctor: Doctor, tmp_path: Path) -> None:
    """Case D12: a warning with the report, and a newer driver or an older base as the way out."""
    tree = healthy_a2(tmp_path)
    tree.driver("24.1.0", "7.5.0.1.129")
    code, checks = doctor(tree, "quickstart", "--cann", "8.3.rc2")
    assert code == 0
    assert not_ok(checks) == {"driver.version": "warning"}
    assert checks["driver.version"][1:] == (
        f"24.1.0 with CANN 8.3.rc2: a model fails there, and runs on an image of CANN 8.2 ({REPORT})",
        "a driver 25.3.x, or an image of CANN 8.2.rc1",
    )
    _, asked = doctor(tree, "mindspeed-rl")
    assert asked["driver.asked"][0] == "warning"
    assert asked["driver.version"][0] == "unknown"  # in no row, so never ok


def test_firmware_that_the_driver_does_not_take(doctor: Doctor, tmp_path: Path) -> None:
    tree = healthy_a2(tmp_path)
    tree.driver(firmware="7.8.0.6.201")
    code, checks = doctor(tree)
    assert (code, not_ok(checks)) == (4, {"firmware.version": "error"})


def test_nodes_of_a_group_that_the_host_has_not(doctor: Doctor, tmp_path: Path) -> None:
    """Case U01: a container's user other than root needs the group's number."""
    tree = healthy_a2(tmp_path)
    tree.system(group="")
    code, checks = doctor(tree, "--user", "alice")
    assert code == 0
    assert checks["devices.access"][0] == "warning"
    assert checks["devices.access"][1].startswith("user alice cannot open any of the nodes (")
    if os.getgid():
        assert checks["devices.group"][2].endswith(f"--group-add {os.getgid()}")


def test_a_user_in_the_group_of_the_nodes(doctor: Doctor, tmp_path: Path) -> None:
    _, checks = doctor(healthy_a2(tmp_path), "--user", "alice")
    assert checks["devices.access"][:2] == (
        "ok",
        f"user alice may open the nodes ({'root' if os.getuid() == 0 else os.getuid()}:HwHiAiUser 0660)",
    )


def test_a_user_by_number(doctor: Doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Case U01."""
    tree = healthy_a2(tmp_path)
    assert doctor(tree, "--user", "4000")[1]["devices.access"][1].startswith("user alice may open the nodes")
    _, checks = doctor(tree, "--user", "4321")
    assert checks["devices.user"][:2] == ("warning", f"uid 4321 has no name here: {UNNAMED}")
    assert doctor.text("--root", str(tmp_path), "--user", "4294967295")[0] == 2
    assert capsys.readouterr().out == ""


def test_this_hosts_users_are_found_by_number_too() -> None:
    named = {user: host_facts._named(user) for user in ("root", "0", "4294967294", "nobody-of-that-name")}
    assert named["root"] == named["0"]
    assert named["root"] is not None
    assert named["root"].is_named
    assert named["4294967294"] == User("4294967294", 4294967294, frozenset({0}), is_named=False)
    assert named["nobody-of-that-name"] is None


def test_a_host_without_npus_builds_images(doctor: Doctor, tmp_path: Path) -> None:
    code, checks = doctor(without_npu(tmp_path), "quickstart")
    assert (code, not_ok(checks)) == (0, {"devices.cards": "warning"})
    assert checks["devices.cards"][1] == "no NPU on this host: no /dev/davinciN, no driver, and none on the PCI bus"
    assert not {"driver.version", "firmware.version", "npu-smi", "chip"} & checks.keys()


def test_the_disk_is_measured_with_the_base(doctor: Doctor, tmp_path: Path) -> None:
    tree = healthy_a2(tmp_path)
    real = doctor(tree, "verl-npu")[1]["disk"][1]
    assert "takes about 22.4 GB with its CANN base" in real
    standin = doctor(tree, "verl-npu", "--base", "standin")[1]["disk"][1]
    assert re.search(r"the image of verl-npu takes about [5-9]\.\d GB with its base$", standin)


def test_a_runtime_that_is_gone(doctor: Doctor, tmp_path: Path) -> None:
    """Case D08."""
    tree = healthy_a2(tmp_path)
    (tree.root / host_trees.RUNTIME.lstrip("/")).unlink()
    code, checks = doctor(tree)
    assert (code, not_ok(checks)) == (4, {"docker.runtime": "error"})


def test_a_ranktable_that_is_left_from_another_chip(doctor: Doctor, tmp_path: Path) -> None:
    """Case D10."""
    tree = healthy_a3(tmp_path)
    tree.write("etc/hccl_rootinfo.json", '{"version": "1.0"}')
    code, checks = doctor(tree)
    assert (code, not_ok(checks)) == (0, {"ranktable": "warning"})


def test_the_text_has_a_line_a_check_and_the_next_step_below_it(doctor: Doctor, tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.npus(2)
    code, out = doctor.text("--root", str(tmp_path))
    assert code == 4
    lines = out.splitlines()
    assert lines[:2] == [
        "error    devices.cards   2 NPUs on the PCI bus, and no /dev/davinciN",
        "                         → install the Ascend driver, or install it again for this kernel; then restart",
    ]
    assert "unknown  memory          /proc/meminfo is missing" in lines
    assert lines[-1] == "2 ok, 1 warning, 3 error, 6 unknown"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--root", "no/such/folder"], "--root: 'no/such/folder' is not a folder"),
        (["--root", ".", "--user", "nobody-at-all"], "no user 'nobody-at-all'"),
        (["quickstrat"], "quickstart"),
        (["quickstart", "--chip", "h100"], "CHIP: 'h100' is not known"),
    ],
)
def test_wrong_use(doctor: Doctor, words: list[str], what: str) -> None:
    code, out = doctor.text(*words)
    assert code == 2
    assert what in out


def test_this_machine_is_read_without_a_traceback(doctor: Doctor) -> None:
    code, out = doctor.text("--json")
    report = json.loads(out)
    jsonschema.validate(report, SCHEMA)
    states = {check["id"]: check["state"] for check in report["checks"]}
    assert code in {0, 4}
    assert states["page-size"] in {"ok", "warning"}  # of a running host nothing of this is unknown
    assert states["disk"] != "unknown"


def test_a_host_without_namespaces_is_another_one_than_one_with_them(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full root, and a container's root without CAP_SYS_ADMIN, got the same report."""
    said = []
    for reason in ("", "this host allows no namespaces"):
        monkeypatch.setattr(module, "why_not", lambda _cache, reason=reason: reason)
        monkeypatch.setattr(module, "can_be_root", lambda: False)
        report = json.loads(doctor.text("--json")[1])
        said.append({check["id"]: check for check in report["checks"]}["sandbox"])
    assert said[0]["state"] == "ok"
    assert said[0]["message"] != said[1]["message"]


@pytest.mark.parametrize("absent", [True, False])
def test_the_disk_is_where_images_are_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, absent: bool) -> None:
    """Without an engine that is the disk of the cache or out/ with less space; a folder may not exist yet."""

    def refused(_env: object) -> NoReturn:
        raise NoEngineError("no Docker engine is running") if absent else UnableError("the engine does not answer")

    free = {tmp_path / "cache": 3, tmp_path / "out": 2, Path("/var/lib/docker"): 1}
    monkeypatch.setattr(host_facts, "find_engine", refused)
    monkeypatch.setattr(host_facts, "_disk", lambda path: (free[path], path))
    found = read_facts([], None, {}, (tmp_path / "cache", tmp_path / "out"))
    assert (found.disk_free, found.disk_at) == ((2, str(tmp_path / "out")) if absent else (1, "/var/lib/docker"))
    monkeypatch.undo()
    monkeypatch.setattr(host_facts, "find_engine", refused)
    found = read_facts([], None, {}, [tmp_path / "not/yet"])
    assert (found.disk_at == str(tmp_path)) is absent


# How a tree is read.


def facts(root: Path, user: str | None = None) -> HostFacts:
    paths = ["/dev/davinci_manager", "/usr/local/dcmi"]
    if root is not None:
        return read_tree(root, paths, user)
    context = read_context(ROOT)
    return read_facts(paths, user, context.env, (context.cache, context.out))


def test_links_are_followed_within_the_tree(tmp_path: Path) -> None:
    root, outside = tmp_path / "tree", tmp_path / "outside"
    (root / "opt/npu/driver").mkdir(parents=True)
    (root / "usr/local").mkdir(parents=True)
    (root / "opt/npu/driver/version.info").write_text("Version=1.2.3\n")
    outside.mkdir()
    (outside / "hccn.conf").write_text("address_0=10.0.0.1\n")
    (root / "usr/local/Ascend").symlink_to("/opt/npu")
    (root / "etc").symlink_to(outside)  # an absolute link, which in the tree leads nowhere
    found = facts(root)
    assert found.driver == {"Version": "1.2.3"}
    assert "/etc/hccn.conf" not in found.texts


@pytest.mark.parametrize(
    ("link", "target", "path", "expected"),
    [
        ("a", "/b", "/a/c", "b/c"),
        ("a", "b/../d", "/a", "d"),
        ("a", "../../../../etc", "/a/passwd", "etc/passwd"),
        ("a", "a", "/a", None),
        ("x", "y", "/a/b", "a/b"),
    ],
)
def test_below(tmp_path: Path, link: str, target: str, path: str, expected: str | None) -> None:
    (tmp_path / link).symlink_to(target)
    assert below(tmp_path, path) == (tmp_path / expected if expected else None)


def test_a_folder_that_may_not_be_read_stops_no_other_check(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may look at everything, so the refusal of the system is made up."""

    def refuse(root: Path, path: str) -> Path | None:
        if path.startswith("/usr/local/Ascend/driver/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return below(root, path)

    monkeypatch.setattr(host_facts, "below", refuse)
    code, checks = doctor(healthy_a2(tmp_path))
    assert (code, not_ok(checks)) == (0, {"driver.files": "unknown", "driver.version": "unknown"})
    assert checks["driver.version"][1:] == (
        "this user cannot read /usr/local/Ascend/driver/version.info",
        "run doctor as root",
    )


def test_a_driver_in_a_folder_that_no_file_system_can_have(doctor: Doctor, tmp_path: Path) -> None:
    tree = healthy_a2(tmp_path)
    tree.write("etc/ascend_install.info", f"Driver_Install_Path_Param=/{'a' * 300}\n")
    code, checks = doctor(tree)
    assert (code, checks["driver.version"][0], checks["chip"][0]) == (4, "error", "ok")


@pytest.mark.parametrize(
    ("path", "text", "check", "state", "message"),
    [
        ("etc/docker/daemon.json", "[" * 100_000, "docker.runtime", "error", "is nested too deep to be read: Docker"),
        (
            "etc/docker/daemon.json",
            "[1]",
            "docker.runtime",
            "error",
            "is JSON, but not an object: Docker does not start",
        ),
        ("etc/docker/daemon.json", "{", "docker.runtime", "error", "is not JSON: Docker does not start"),
        ("etc/hccl_rootinfo.json", "[" * 100_000, "ranktable", "warning", "is nested too deep to be read"),
        ("etc/hccl_rootinfo.json", "[1]", "ranktable", "warning", "is JSON, but not an object"),
        ("usr/local/Ascend/driver/version.info", "\x01\u20ac\x00", "driver.version", "unknown", "names no version"),
        ("usr/local/Ascend/driver/version.info", "Version=new\n", "driver.version", "unknown", "no version: 'new'"),
        ("usr/local/Ascend/driver/version.info", f"Version={'9' * 5000}\n", "driver.version", "unknown", "no version"),
        ("usr/local/Ascend/driver/version.info", f"Version=25.{'9' * 5000}\n", "driver.version", "unknown", "version"),
        ("usr/local/Ascend/firmware/version.info", f"Version={'9' * 5000}\n", "firmware.version", "unknown", "no ver"),
        ("proc/meminfo", f"MemTotal: {'9' * 5000} kB\n", "memory", "unknown", "/proc/meminfo"),
    ],
)
def test_broken_files_are_reported_and_stop_no_other_check(
    doctor: Doctor, tmp_path: Path, path: str, text: str, check: str, state: str, message: str
) -> None:
    tree = healthy_a2(tmp_path)
    tree.write(path, text)
    _, checks = doctor(tree, "mindspeed-rl")
    assert checks[check][0] == state
    assert message in checks[check][1]
    assert len(checks[check][1]) < 300


def test_only_ascii_digits_number_a_card(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.nodes(1)
    tree.write("dev/davinci\u0663")
    assert facts(tmp_path).cards == (0,)


def test_nothing_of_this_machine_is_in_an_empty_tree(tmp_path: Path) -> None:
    assert facts(tmp_path) == HostFacts(live=False, nodes=(), pci=None, texts={}, paths=frozenset())


def test_nodes_keep_owner_and_mode(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.nodes(11, mode=0o640)
    tree.write("dev/davinci_manager_docker")
    found = facts(tmp_path).nodes
    assert [node.path for node in found] == [*(f"/dev/davinci{n}" for n in range(11)), "/dev/davinci_manager"]
    assert {(node.uid, node.gid, node.mode, node.is_device) for node in found} == {
        (os.getuid(), os.getgid(), 0o640, False)
    }


@pytest.mark.parametrize("spoil", [lambda p: p.write_bytes(b"\xff\xfe\x00"), lambda p: p.mkdir()])
def test_files_that_are_none_are_passed_over(tmp_path: Path, spoil: Callable[[Path], Any], doctor: Doctor) -> None:
    for name in (
        "etc/docker/daemon.json",
        "proc/meminfo",
        "etc/hccl_rootinfo.json",
        "usr/local/Ascend/driver/version.info",
    ):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        spoil(place)
    _, checks = doctor(Tree(tmp_path))
    assert (checks["memory"][0], checks["kernel"][0]) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo npu-smi 25.0.rc1; echo more >&2; exit 3", "npu-smi 25.0.rc1\nmore\n"),
        ("sleep 60", "no answer within 0.2 s"),  # where the driver hangs, so does it
    ],
)
def test_the_answer_of_npu_smi_has_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, answer: str
) -> None:
    program = tmp_path / "npu-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(host_facts, "NPU_SMI", (str(program),))
    monkeypatch.setattr(host_facts, "SMI_SECONDS", 0.2)
    assert host_facts._smi({str(program)}, os.environ) == answer
    assert host_facts._smi({"/usr/bin/other"}, os.environ) is None
    program.chmod(0o644)
    assert host_facts._smi({str(program)}, os.environ) == "it cannot be started: Permission denied"
