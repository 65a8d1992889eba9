"""The level npu on made-up nodes, drivers and a made-up torch; and the command line: exit codes, skips, JSON."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import jsonschema
import pytest
from data.verify_tree import ASCEND, NPU_IDS, REPOSITORY, Tree

import verify
from verifying import access
from verifying.checks import check_ids, run_checks
from verifying.npu import NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REPORT_SCHEMA = json.loads((REPOSITORY / "docs/verify-report.schema.json").read_text())


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(access, "PRIVATE", "/no-such-home/")
    (tmp_path / "image").mkdir()
    return Tree(tmp_path / "image")


@pytest.fixture
def npus(tree: Tree) -> Tree:
    """A container that was given the host's cards 3 and 4."""
    tree.nodes(3, 4)
    tree.driver()
    tree.smi("echo '| npu-smi 25.2.0  Version: 25.2.0 |'")
    tree.env["FAKE_NPUS"] = "2"
    return tree


def states(tree: Tree) -> dict[str, str]:
    return {item.id: item.status for item in run_checks(tree.image(), NPU_IDS)}


def only_failed(name: str) -> dict[str, str]:
    ground = {item for item, needs in NEEDS.items() if name in needs}
    return {item: "failed" if item == name else "skipped" if item in ground else "passed" for item in NPU_IDS}


def test_a_container_with_two_cards_passes(npus: Tree) -> None:
    assert set(states(npus).values()) == {"passed"}
    assert npus.check("npu.tensor").message == "a tensor went to npu:0, npu:1 and back"
    npus.env["ASCEND_RT_VISIBLE_DEVICES"] = "1"
    npus.env["FAKE_NPUS"] = "1"
    assert set(states(npus).values()) == {"passed"}


def no_manager(tree: Tree) -> None:
    (tree.root / "dev/hisi_hdc").unlink()


def no_driver(tree: Tree) -> None:
    (tree.root / f"{ASCEND}/driver/lib64/driver/libascend_hal.so"[1:].lstrip("/")).unlink()


def stub_first(tree: Tree) -> None:
    tree.write(f"{ASCEND}/devlib/libascend_hal.so")
    tree.env["LD_LIBRARY_PATH"] = f"{ASCEND}/devlib:{tree.env['LD_LIBRARY_PATH']}"


BROKEN: list[tuple[str, str, Callable[[Tree], object]]] = [
    ("npu.nodes", "/dev/hisi_hdc is missing", no_manager),
    ("npu.nodes", "/dev/davinci0 is missing", lambda t: [(t.root / f"dev/davinci{at}").unlink() for at in (3, 4)]),
    ("npu.driver", "driver missing: no libascend_hal.so", no_driver),
    ("npu.driver", "a stub wins", stub_first),
    ("npu.driver", "LD_LIBRARY_PATH does not lead to", lambda t: t.env.pop("LD_LIBRARY_PATH")),
    ("npu.driver", "version.info is missing", lambda t: (t.root / f"{ASCEND}/driver/version.info"[1:]).unlink()),
    (
        "npu.smi",
        "the npu-smi of a stand-in base",
        lambda t: t.smi("echo 'npu-smi of a Cannery stand-in base: no NPU here'"),
    ),
    ("npu.smi", "ended with code 5", lambda t: t.smi("exit 5")),
    ("npu.visible", "index outside 0..1", lambda t: t.env.update(ASCEND_RT_VISIBLE_DEVICES="4")),
    ("npu.visible", "not a list of numbers", lambda t: t.env.update(ASCEND_RT_VISIBLE_DEVICES="all")),
    ("npu.tensor", "npu:1: RuntimeError: NPU out of order", lambda t: t.env.update(FAKE_BROKEN_NPU="1")),
]


@pytest.mark.parametrize(("name", "says", "breaks"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_broken_fact_fails_its_own_check_alone(
    npus: Tree, name: str, says: str, breaks: Callable[[Tree], object]
) -> None:
    breaks(npus)
    outcome = npus.check(name)
    assert outcome.status == "failed"
    assert says in "\n".join([outcome.message, *outcome.details])
    expected = only_failed(name)
    if "davinci0" in says:
        expected["npu.visible"] = "passed"
    assert states(npus) == expected


def test_a_wrong_count_fails_the_count_and_no_tensor_is_tried(npus: Tree) -> None:
    npus.env["FAKE_NPUS"] = "1"
    assert states(npus) == only_failed("npu.count")
    assert npus.check("npu.count").message == "torch_npu counts 1 NPUs, 2 are visible"


def test_every_npu_check_is_broken_by_a_case() -> None:
    assert {name for name, _, _ in BROKEN} | {"npu.count"} == set(NPU_IDS)


@pytest.mark.parametrize("code", ["-8005", "-8020"])
def test_a_busy_card_is_the_machines_failure(npus: Tree, capsys: pytest.CaptureFixture[str], code: str) -> None:
    npus.smi(f"echo 'dcmi module initialize failed. ret is {code}'; exit 1")
    outcome = npus.check("npu.smi")
    assert outcome.message.startswith(
        f"card busy or not mounted (npu-smi: {code}); nodes: /dev/davinci3, /dev/davinci4, "
    )
    assert run(npus, capsys, "--level", "npu")[0] == 3
    no_driver(npus)
    assert run(npus, capsys, "--level", "npu")[0] == 1


def test_no_npu_smi_is_a_warning_while_the_devices_work(npus: Tree) -> None:
    (npus.outside / "npu-smi").unlink()
    assert npus.check("npu.smi").message == "npu-smi is not mounted; torch_npu sees 2 NPUs"
    assert npus.check("npu.smi").status == "warning"
    npus.env["FAKE_NPUS"] = "0"
    assert npus.check("npu.smi").status == "failed"


def test_a_node_of_another_owner_is_named_with_mode_and_owner(npus: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    node = npus.root / "dev/davinci3"
    node.chmod(0o660)
    npus.write("/etc/passwd", f"HwHiAiUser:x:{node.stat().st_uid}:{node.stat().st_gid}::/:/bin/sh\n")
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("davinci3"))
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    outcome = npus.check("npu.nodes")
    assert outcome.status == "failed"
    assert f"/dev/davinci3 belongs to HwHiAiUser({node.stat().st_uid}):" in outcome.message
    assert "mode 0660" in outcome.message
    assert f"--group-add {node.stat().st_gid}" in outcome.message


def test_a_node_against_the_device_rules(npus: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("davinci3"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "/dev/davinci3 is closed to this container by its device rules" in npus.check("npu.nodes").message


def test_no_nodes_is_a_skip_with_five_points(tree: Tree) -> None:
    outcomes = list(run_checks(tree.image(), NPU_IDS))
    assert {(item.status, item.message) for item in outcomes} == {("skipped", "no NPU")}
    points = outcomes[0].details
    assert [line.split(":")[0] for line in points] == ["nodes", "mounts", "driver", "permission", "env"]
    assert points[0] == "nodes: missing /dev/davinci_manager, /dev/hisi_hdc, /dev/devmm_svm, /dev/davinci0"
    assert points[4] == "env: ok"


def test_a_950_has_no_devmm_svm(npus: Tree) -> None:
    (npus.root / "dev/devmm_svm").unlink()
    assert npus.check("npu.nodes").status == "failed"
    npus.manifest["target"]["chip"] = "950"
    assert npus.check("npu.nodes").status == "passed"


@pytest.mark.parametrize("with_nodes", [False, True])
def test_a_stand_in_never_passes_the_level(tree: Tree, *, with_nodes: bool) -> None:
    tree.manifest["base"]["kind"] = "standin"
    if with_nodes:
        tree.nodes(0)
    outcomes = list(run_checks(tree.image(), NPU_IDS))
    reason = "stand-in" if with_nodes else "stand-in: no NPU"
    assert {(item.status, item.message) for item in outcomes} == {("skipped", reason)}


# The command line -----------------------------------------------------------------------------------------------------


def run(tree: Tree, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """(exit code, output) of the script on the tree, in the tree's environment and working folder."""
    tree.save()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", dict(tree.env))
        patch.setattr(verify, "working_folder", lambda: tree.cwd)
        code = verify.main(["--root", str(tree.root), "--timeout", "20", *options])
    return code, capsys.readouterr().out


def test_without_an_npu_all_else_passes(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(tree, capsys)
    assert code == 0
    assert out.splitlines()[-1] == "✅ passed: 23 passed, 6 skipped; the NPU was not tested (no NPU)"
    assert "⏭️  npu.nodes: skipped: no NPU\n     nodes: missing" in out


def test_a_required_npu_that_is_absent_is_code_3(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(tree, capsys, "--require-npu")
    assert code == 3
    assert "unable: this machine cannot run what was asked" in out
    (tree.site / "demo/part.py").unlink()
    assert run(tree, capsys, "--require-npu")[0] == 1


def test_a_required_npu_that_works_is_code_0(npus: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(npus, capsys, "--require-npu", "--level", "npu")
    assert code == 0
    assert "not tested" not in out


def test_a_skip_that_the_manifest_does_not_allow_fails(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.manifest["may_skip"].remove("npu.count")
    code, out = run(tree, capsys, "--level", "npu")
    assert code == 1
    assert "❌ npu.count: skipped (no NPU), and the manifest's may_skip does not allow that" in out
    assert run(tree, capsys, "--level", "npu", "--no-device")[0] == 0
    assert run(tree, capsys, "--level", "npu", "--require-npu")[0] == 3


def test_no_device_skips_even_where_there_are_cards(npus: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(npus, capsys, "--level", "npu", "--no-device")
    assert code == 0
    assert out.count("skipped: --no-device") == len(NPU_IDS)
    assert "the NPU was not tested (--no-device)" in out


@pytest.mark.parametrize("broken", [False, True])
def test_the_json_report_fits_its_schema(tree: Tree, capsys: pytest.CaptureFixture[str], *, broken: bool) -> None:
    if broken:
        (tree.site / "demo/part.py").unlink()
    code, out = run(tree, capsys, "--json")
    report = json.loads(out)
    jsonschema.validate(report, REPORT_SCHEMA)
    assert (code, report["result"]) == ((1, "failed") if broken else (0, "passed"))
    assert [item["id"] for item in report["checks"]] == check_ids(tree.manifest)
    assert sum(report["counts"].values()) == len(report["checks"])
    assert report["counts"]["failed"] == (1 if broken else 0)
    assert (report["plan"], report["profile"], report["base"]) == ("0123456789ab", "demo", "real")


def test_only_and_list(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, capsys, "--list") == (0, "\n".join(check_ids(tree.manifest)) + "\n")
    code, out = run(tree, capsys, "--only", "static.shm", "--only", "static.programs")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if line.startswith("✅ static")] == [
        "static.programs:",
        "static.shm:",
    ]


@pytest.mark.parametrize("level", ["static", "npu"])
def test_a_manifest_of_another_digest_fails_whatever_was_asked(
    tree: Tree, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    digest = hashlib.sha256(tree.save().read_bytes()).hexdigest()
    options = ["--level", level, "--json", "--manifest-sha256"]
    for same in (digest, digest.upper(), f"sha256:{digest}"):
        assert run(tree, capsys, *options, same)[0] == 0
    tree.manifest["deny"] = []  # an image that weakens its own proof
    code, out = run(tree, capsys, *options, digest)
    report = json.loads(out)
    jsonschema.validate(report, REPORT_SCHEMA)
    ((name, status, message),) = [(item["id"], item["status"], item["message"]) for item in report["checks"]]
    assert (code, name, status) == (1, "static.manifest", "failed")
    assert "another manifest than the one asked for" in message
    assert message.endswith(f"wanted {digest}")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "static.whels"], "no check static.whels (nearest: static.wheels)"),
        (["--only", "static.shm", "--level", "npu"], "leave no check"),
        (["--require-npu", "--no-device"], "exclude each other"),
        (["--timeout", "0"], "must be above 0"),
        (["--level", "all"], "invalid choice"),
        (["--manifest-sha256", "ab12"], "expected 64 hex digits, found 'ab12'"),
        (["--manifest-sha256", ""], "expected 64 hex digits"),
    ],
)
def test_wrong_use_is_code_2(tree: Tree, capsys: pytest.CaptureFixture[str], options: list[str], says: str) -> None:
    tree.save()
    try:
        code = verify.main(["--root", str(tree.root), *options])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert says in capsys.readouterr().err


# Several hosts (W10)


@pytest.mark.parametrize(
    ("conf", "status", "says"),
    [
        (None, "failed", "/etc/hccn.conf is missing"),
        ("folder", "failed", "/etc/hccn.conf is a folder"),
        ("address_0=192.0.2.1\n", "failed", "no address of /dev/davinci1"),
        ("address_0=192.0.2.1\naddress_1=192.0.2.2\n", "warning", "hccn_tool is not mounted"),
    ],
)
def test_the_network_of_several_hosts(tree: Tree, conf: str | None, status: str, says: str) -> None:
    tree.nodes(0, 1)
    assert "npu.network" not in check_ids(tree.manifest)
    tree.manifest["several_hosts"] = True
    assert "npu.network" in check_ids(tree.manifest)
    if conf == "folder":
        (tree.root / "etc/hccn.conf").mkdir(parents=True)
    elif conf is not None:
        tree.write("/etc/hccn.conf", conf)
    found = tree.check("npu.network")
    assert (found.status, says in found.message) == (status, True), found.message
