"""Proofs from hosts with NPUs, through the whole path: recorded by verify, filed, shown. The host is made up.

No proof of these is ever below the checkout's own images/proofs.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from host_trees import Tree, healthy_a2
from schemas import ci_faults
from small_checkout import TODAY, Small, make_small
from stub_index import StubIndex

from cannery import cli
from cannery.catalog.io.read import load_catalog
from cannery.commands import run, verify
from cannery.commands.proofs import proved, read_proof
from cannery.context import read_context
from cannery.errors import ExitCode
from cannery.verify.io.run import Verified
from cannery.verify.proof import UNPROVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cannery.pipeline import Work
    from cannery.verify.io.run import VerifyRequest
    from cannery.verify.lines import Check

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGE = f"sha256:{'ab' * 32}"
TARGET = {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11", "arch": "arm64"}
CHECKS: list[dict[str, Any]] = [
    {"id": "npu.nodes", "level": "npu", "status": "passed", "message": "/dev/davinci0", "details": ["/home/alice"]},
    {"id": "npu.tensor", "level": "npu", "status": "passed", "message": f"on {socket.gethostname()}", "seconds": 1.5},
]


@pytest.fixture
def small(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    with StubIndex() as index:
        yield make_small(tmp_path, index, capsys, monkeypatch)


class NpuHost:
    """A host whose image verify finds to be as in `checks`."""

    def __init__(self, tree: Tree, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
        self.small, self.file, self.asked = small, small.root.parent / "npu.json", list[Any]()
        self.result, self.checks = "passed", [dict(one) for one in CHECKS]
        monkeypatch.setattr(run, "HOST_ROOT", tree.root)
        found = SimpleNamespace(id=IMAGE, labels={})
        monkeypatch.setattr(verify, "place_with", lambda *_, **__: SimpleNamespace(needed=lambda *_: found))
        monkeypatch.setattr(verify, "verified", self._verified)

    def _verified(self, work: Work, request: VerifyRequest, on_check: Callable[[Check], None]) -> Verified:
        self.asked.append(request)
        for check in self.checks:
            on_check(check)
        report = {"result": self.result, "checks": self.checks, "counts": {"passed": len(self.checks)}}
        return Verified(report, 0 if self.result == "passed" else 1, reused=False)

    def record(self, *words: str) -> int:
        words = words or ("--level", "npu")
        return self.small("verify", "stack", "--arch", "arm64", "--record", str(self.file), *words).code

    def value(self, **changes: object) -> dict[str, Any]:
        """The recorded file, written again with other values."""
        value = {**json.loads(self.file.read_text()), **changes}
        self.file.write_text(json.dumps(value))
        return value


@pytest.fixture
def host(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NpuHost:
    return NpuHost(healthy_a2(tmp_path / "host"), small, monkeypatch)


def test_a_proof_through_the_whole_path(host: NpuHost, small: Small) -> None:
    assert UNPROVED in small("list").out
    assert host.record() == ExitCode.DONE
    assert host.asked[0].require_npu
    value = host.value()
    assert value.keys() == {"proof", "date", "profile", "target", "plan", "image", "driver", "result", "checks"}
    assert (value["image"], value["driver"], value["target"]["chip"]) == (IMAGE, "25.0.rc1.1", "910b")
    assert {one["id"]: one["seconds"] for one in value["checks"]} == {"npu.nodes": 0, "npu.tensor": 1.5}
    for word in (socket.gethostname(), getpass.getuser(), "/home", "/dev", "alice"):
        assert word not in json.dumps(value)

    done = small("proofs", "add", str(host.file))
    assert done.code == ExitCode.DONE
    (path,) = (small.root / "images/proofs/stack").glob(f"{TODAY}-{value['plan']}-arm64-????????.json")
    assert json.loads(path.read_text()) == value
    words = f"real NPU, {TODAY}, 910b, driver 25.0.rc1.1"
    assert words in small("list").out
    assert json.loads(small("list", "--json").out)[0]["proof"] == words
    assert f"proof: {words}\n" in small("show", "stack").out
    assert json.loads(small("show", "stack", "--json").out)["proof"] == words
    assert f"| on NPUs | {words} |" in small("report", "stack", "--arch", "arm64", "--format", "markdown").out

    profile = small.profile()  # another plan: what was proved is another image
    profile.write_text(profile.read_text().replace("summary: made up", "summary: made up\nshm_size: 20g"))
    assert f"{words}, of an earlier plan ({value['plan']})" in small("list").out
    refused = small("proofs", "add", str(host.file))
    assert refused.code == ExitCode.FINDINGS
    assert value["plan"] in refused.err


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"result": "failed"}, ExitCode.FINDINGS),
        ({"checks": [{"id": "npu.nodes", "status": "passed", "seconds": 1}]}, ExitCode.FINDINGS),
        ({"checks": [{"id": "npu.tensor", "status": "skipped", "seconds": 1}]}, ExitCode.FINDINGS),
        ({"plan": "0" * 12}, ExitCode.FINDINGS),
        ({"profile": "nobody"}, ExitCode.USAGE),
        ({"profile": "../../etc"}, ExitCode.USAGE),
        ({"plan": "../.."}, ExitCode.USAGE),
        ({"date": "today"}, ExitCode.USAGE),
        ({"date": "2026-08-03"}, ExitCode.FINDINGS),
        ({"date": "9999-12-31"}, ExitCode.FINDINGS),
        ({"date": 0}, ExitCode.USAGE),
        ({"date": "0"}, ExitCode.USAGE),
        ({"date": "0001-01-01"}, ExitCode.USAGE),
        ({"date": "2024-12-31"}, ExitCode.USAGE),
        ({"target": {**TARGET, "arch": "aarch64"}}, ExitCode.FINDINGS),
        ({"target": {**TARGET, "chip": "a2"}}, ExitCode.FINDINGS),
        ({"driver": "25.0 on host7"}, ExitCode.USAGE),
        ({"host": "node7"}, ExitCode.USAGE),
        ({"checks": []}, ExitCode.USAGE),
        ({"checks": [{"id": "npu.tensor", "status": "passed", "seconds": -1}]}, ExitCode.USAGE),
        ({"checks": [{"id": "npu.tensor", "status": "passed", "seconds": 1, "message": "at /root"}]}, ExitCode.USAGE),
    ],
)
def test_what_proves_nothing_is_not_filed(host: NpuHost, small: Small, changes: dict[str, Any], code: ExitCode) -> None:
    assert host.record() == ExitCode.DONE
    host.value(**changes)
    done = small("proofs", "add", str(host.file))
    assert done.code == code
    assert "→" in done.err
    assert not (small.root / "images/proofs").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "null"])
def test_a_file_that_is_no_proof(small: Small, tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert small("proofs", "add", str(tmp_path / "x.json")).code == ExitCode.USAGE
    assert small("proofs", "add", str(tmp_path)).code == ExitCode.USAGE
    assert small("proofs", "add", str(tmp_path / "none")).code == ExitCode.USAGE


def test_a_file_that_never_ends_or_is_too_large(small: Small, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text(" " * 1_000_001)
    for path in ("/dev/zero", tmp_path / "pipe", tmp_path / "large"):
        assert small("proofs", "add", str(path)).code == ExitCode.USAGE


def test_a_second_proof_of_a_day_is_filed_beside_the_first(host: NpuHost, small: Small) -> None:
    assert host.record() == ExitCode.DONE
    host.value(target=TARGET, date="2026-08-02")  # a day of another host's clock
    for driver in ("25.2.0", "99.9.9", "99.9.9"):
        host.value(driver=driver)
        assert small("proofs", "add", str(host.file)).code == ExitCode.DONE
    found = [read_proof(path).driver for path in (small.root / "images/proofs/stack").iterdir()]
    assert sorted(found) == ["25.2.0", "99.9.9"]


def test_what_is_no_proof_of_the_profile_is_left_out(host: NpuHost, small: Small) -> None:
    assert host.record() == ExitCode.DONE
    assert small("proofs", "add", str(host.file)).code == ExitCode.DONE
    words = small("show", "stack").out
    folder = small.root / "images/proofs/stack"
    (folder / "2026-07-01-broken.json").write_text("{")
    host.value(profile="other")
    host.file.rename(folder / "2026-08-01-other.json")
    for command in (("list",), ("show", "stack")):
        done = small(*command)
        assert done.code == ExitCode.DONE
        assert done.err.count("is left out") == 2
    assert done.out == words


def test_a_drivers_version_may_be_in_capitals(host: NpuHost, tmp_path: Path) -> None:
    Tree(tmp_path / "host").driver("23.0.RC2.1")
    assert host.record() == ExitCode.DONE
    assert host.value()["driver"] == "23.0.rc2.1"


def test_a_failure_is_recorded_and_keeps_its_exit_code(host: NpuHost) -> None:
    host.result, host.checks[1]["status"] = "failed", "failed"
    assert host.record("--level", "npu", "--level", "train") == ExitCode.VERIFY_FAILED
    assert host.value()["result"] == "failed"
    assert "issue form" not in host.small.capture.readouterr().err


def test_nothing_is_recorded_where_no_npu_is_asked_for(host: NpuHost, small: Small) -> None:
    for words in (("--level", "static"), ("--all",), ("--level", "npu", "--image", "other:1")):
        assert host.record(*words) == ExitCode.USAGE
    for words in (
        ("verify", "stack", "--record", "", "--level", "npu"),
        ("verify", "--against", "a:1", "--record", ""),
    ):
        assert small(*words).code == ExitCode.USAGE
    done = small("verify", "stack", "--level", "npu", "--base", "standin", "--record", str(host.file))
    assert (done.code, "use a real base: --base 8.5.0-910b-ubuntu22.04-py3.11" in done.err) == (ExitCode.USAGE, True)
    assert small("verify", "--against", "a:1", "--record", "x").code == ExitCode.USAGE
    assert host.asked == []
    assert not host.file.exists()


def test_a_host_without_the_images_npu_is_refused_first(host: NpuHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.record("--level", "npu", "--chip", "a3") == ExitCode.UNABLE
    monkeypatch.setattr(run, "HOST_ROOT", host.small.root)
    assert host.record() == ExitCode.UNABLE
    assert host.asked == []


def test_a_file_that_cannot_be_written(host: NpuHost, tmp_path: Path) -> None:
    host.file = tmp_path / "none/npu.json"
    assert host.record() == ExitCode.USAGE
    assert not host.file.parent.exists()
    host.file.parent.write_text("")
    assert host.record() == ExitCode.USAGE
    host.file = tmp_path
    assert host.record() == ExitCode.USAGE
    assert host.asked == []


def test_the_issue_form_is_githubs_and_asks_for_the_file() -> None:
    path = ROOT / ".github/ISSUE_TEMPLATE/npu-proof.yml"
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert ci_faults(form, "github-issue-forms") == []
    assert ci_faults({**form, "body": [{"type": "nothing"}]}, "github-issue-forms")
    assert "--record" in path.read_text(encoding="utf-8")
    assert form["name"] in (ROOT / "cannery/commands/verify.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_readmes_table_has_what_is_filed(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path))
    context = read_context(ROOT)
    catalog = load_catalog(ROOT / "images")
    text = (ROOT / name).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\|[^|]*\| `([a-z0-9.-]+)` \|.*\| ([^|]*) \|$", text, re.MULTILINE))
    words = {profile: proved(context, catalog, profile) for profile in catalog.profiles}
    assert rows == {profile: {UNPROVED: "stand-in only"}.get(text, text) for profile, text in words.items()}
    assert cli.main(["list"], ROOT) == 0


def test_what_is_filed_is_readable() -> None:
    for path in (ROOT / "images/proofs").rglob("*.json"):
        assert str(path).endswith(f"images/proofs/{read_proof(path).name}")
