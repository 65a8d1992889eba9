"""`build.py run` and `shell` on made-up hosts: what is read, what is printed, what is started, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from checkouts import copy_checkout
from hosts import DCMI, DRIVER, HCCN, MANAGERS
from schemas import compose_faults, kubernetes_faults, ray_faults

from cannery import cli
from cannery.catalog.catalog import ImageUser
from cannery.catalog.io.read import load_catalog
from cannery.commands import run as module
from cannery.engine.io.find import Engine, NoEngineError
from cannery.errors import ExitCode
from cannery.host.facts import RANKTABLE, full_model, wanted_paths
from cannery.host.io.look import read_host
from cannery.run.container import RunRequest, make_container
from cannery.run.io.folders import ready_caches
from cannery.sandbox.box import Mount, box_command
from cannery.vocab import Arch, Chip

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
CATALOG = load_catalog(ROOT / "images")
A2 = CATALOG.chips["910b"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Started(BaseException):
    """In the place of execve, which does not return: nothing catches it."""


class Host:
    """build.py on a made-up host: its devices, driver, user and engine."""

    def __init__(self, folder: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, capture: Any) -> None:  # noqa: ANN401
        self.root, self.home, self.checkout, self.capture = folder / "host", folder / "home", checkout, capture
        self.runtimes = {"runc"}
        self.started: list[str] = []
        self.root.mkdir()
        self.home.mkdir()
        for name in ("XDG_CACHE_HOME", "HF_HOME", "MODELSCOPE_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("CANNERY_CACHE", str(folder / "cache"))
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
        monkeypatch.setattr(module, "HOST_ROOT", self.root)
        versions = {"server_version": "26", "arch": "amd64"}
        engine = Engine("unix:///s", Path("/usr/bin/docker"), data_root=None, **versions)
        self.user_map, self.engine_host = "", "unix:///s"
        monkeypatch.setattr(
            module,
            "find_engine",
            lambda *_, **__: replace(
                engine, user_map=self.user_map, host=self.engine_host, runtimes=frozenset(self.runtimes)
            ),
        )
        monkeypatch.setattr(module, "docker_client", lambda _: self)
        monkeypatch.setattr(module.EnginePlace, "needed", lambda *_: "sha256:1")
        monkeypatch.setattr(os, "execve", self._execve)

    def _execve(self, _program: str, line: list[str], _env: dict[str, str]) -> None:
        self.started = list(line)
        raise Started

    def has(self, *paths: str, cards: tuple[int, ...] = ()) -> Host:
        for path in (*paths, *(f"/dev/davinci{n}" for n in cards), *(MANAGERS if cards else ())):
            place = self.root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        return self

    def __call__(self, *words: str, root: Path | None = None) -> Done:
        self.capture.readouterr()
        try:
            code = cli.main(words, root or self.checkout)
        except Started:
            code = 0
        text = self.capture.readouterr()
        assert "Traceback" not in text.out + text.err
        return Done(code, text.out, text.err)

    def start(self, *words: str, root: Path | None = None) -> list[str]:
        """What docker is started with, after the program."""
        self.started = []
        done = self(*words, root=root)
        assert self.started, done.err
        return self.started[1:]


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def host(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Host:
    monkeypatch.chdir(tmp_path)
    return Host(tmp_path, checkout, monkeypatch, capsys)


# The real chips


@pytest.mark.parametrize("chip", Chip)
def test_every_chips_model(chip: Chip) -> None:
    """Cases D01 and D11."""
    access = CATALOG.chips[chip]
    container = make_container(RunRequest("i", "16g", network="host"), access, full_model(access, None))
    managers = {node for node in container.devices if not node[12:].isdigit()}
    mounts = {mount.source for mount in container.driver}
    assert managers == {"/dev/davinci_manager", "/dev/hisi_hdc"} | (set() if chip is Chip.A5 else {"/dev/devmm_svm"})
    assert ("/usr/local/Ascend/driver" in mounts) == (chip is Chip.A5)
    assert ("/usr/local/Ascend/driver/lib64" in mounts) == (chip is not Chip.A5)
    assert {DCMI, "/etc/ascend_install.info", "/usr/local/bin/npu-smi"} <= mounts
    assert (HCCN in mounts) == (chip is not Chip.P310)
    assert container.cards == {Chip.A3: 16}.get(chip, 8)
    assert all(mount.read_only for mount in container.driver)


def test_what_the_device_plugin_calls_each_chip_and_which_ranktable_it_takes() -> None:
    assert {chip: access.resource for chip, access in CATALOG.chips.items()} == {
        "910b": "huawei.com/Ascend910",
        "a3": "huawei.com/Ascend910",
        "910": "huawei.com/Ascend910",
        "310p": "huawei.com/Ascend310P",
        "950": "huawei.com/npu",
    }
    tables = {chip: access.ranktable for chip, access in CATALOG.chips.items() if access.ranktable}
    assert tables == {"910b": "1.0", "a3": "1.2", "950": "2.0"}


# What is read


@pytest.mark.parametrize(
    ("text", "version"),
    [('{"version": "1.2"}', "1.2"), ('{"version": 1.2}', ""), ("[]", ""), ("{", ""), ("", ""), (b"\xff\xfe", "")],
)
def test_the_version_of_a_ranktable(tmp_path: Path, text: str | bytes, version: str) -> None:
    path = tmp_path / "etc/hccl_rootinfo.json"
    path.parent.mkdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert read_host(wanted_paths(A2), tmp_path).ranktable == version
    path.unlink()
    path.mkdir()
    assert read_host(wanted_paths(A2), tmp_path).ranktable == "", "what docker made of a missing one"


def test_caches_are_made_for_their_user(tmp_path: Path) -> None:
    """Case U03."""
    mounts = (Mount(str(tmp_path / "a/b"), "/root/.cache/b"),)
    assert tuple(ready_caches(mounts, pytest.fail, make=False)) == ()
    assert not (tmp_path / "a").exists(), "to print makes nothing"
    assert tuple(ready_caches(mounts, pytest.fail, make=True)) == mounts
    assert (tmp_path / "a/b").stat().st_uid == os.getuid()
    assert tuple(ready_caches(mounts, pytest.fail, make=False)) == mounts


def test_a_cache_that_cannot_be_made_or_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case U03."""
    (tmp_path / "file").touch()
    said: list[str] = []
    assert tuple(ready_caches((Mount(str(tmp_path / "file/b"), "/c"),), said.append, make=True)) == ()
    assert said[0].startswith(f"warning: {tmp_path}/file/b cannot be made")
    (tmp_path / "models").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    (found,) = ready_caches((Mount(str(tmp_path / "models"), "/c"),), said.append, make=True)
    assert found.read_only
    assert said[1].startswith(f"warning: you cannot write {tmp_path}/models")


def test_a_cache_that_the_images_user_cannot_write_is_a_warning(tmp_path: Path) -> None:
    """Case U03: the host's user and the image's are two numbers."""
    user, made = ImageUser(name="me", uid=4321, gid=4322), tmp_path / "made"
    mounts, said = (Mount(str(made), "/c"),), list[str]()
    assert tuple(ready_caches(mounts, said.append, make=True, user=user)) == mounts
    if os.geteuid() == 0:
        assert (made.stat().st_uid, made.stat().st_gid, said) == (4321, 4322, [])
        os.chown(made, 77, 78)
    assert tuple(ready_caches(mounts, said.append, make=True, user=user)) == mounts
    assert said[-1].startswith(f"warning: the container's user me (4321) cannot write {made}, which is uid ")
    assert said[-1].endswith(f"setfacl -m u:4321:rwx {made} lets it, --no-caches leaves the image's own in place")
    made.chmod(0o777)
    assert tuple(ready_caches(mounts, pytest.fail, make=False, user=user)) == mounts


# What is started


def test_a_container_is_started_with_what_exists(host: Host) -> None:
    host.has(*DRIVER, "/usr/local/sbin/npu-smi", cards=(3, 4))
    words = host.start("run", "quickstart", "--npus", "4", "--name", "mine", "--", "python", "train.py")
    assert [b for a, b in pairwise(words) if a == "--device"] == ["/dev/davinci4", *MANAGERS]
    assert "type=bind,source=/usr/local/sbin/npu-smi,target=/usr/local/bin/npu-smi,readonly" in words
    assert not any(DCMI in word for word in words)
    assert f"type=bind,source={host.home}/.cache/huggingface,target=/root/.cache/huggingface" in words
    assert (host.home / ".cache/modelscope").is_dir()
    assert "ASCEND_RT_VISIBLE_DEVICES=0" in words
    assert words[-2:] == ["python", "train.py"]


def test_what_is_started_is_printed(host: Host) -> None:
    host.has(cards=(0, 1))
    done = host("run", "quickstart", "--npus", "all", "--no-caches")
    assert "NPUs: 2, by single device nodes" in done.err
    assert f"note: this host has no {DCMI}: not mounted" in done.err
    assert not [word for word in host.started if ".cache" in word]
    assert not (host.home / ".cache").exists()


def test_a_rootless_engine_is_a_warning_where_a_group_opens_the_nodes(host: Host) -> None:
    host.has(cards=(0,))
    nodes = [host.root / node.lstrip("/") for node in ("/dev/davinci0", *MANAGERS)]
    for node in nodes:
        os.chown(node, -1, 1000) if os.geteuid() == 0 else None
    host.user_map = "rootless"
    done = host("run", "quickstart", "--npus", "all")
    told = "warning: the engine has users of its own (rootless): nobody in its containers is in a group of the host: "
    assert (told in done.err) is (nodes[0].stat().st_gid != 0)
    assert "users of its own" not in host("run", "quickstart", "--npus", "none").err
    host.user_map = ""
    assert "users of its own" not in host("run", "quickstart", "--npus", "all").err


def test_an_engine_on_another_host_is_a_warning(host: Host) -> None:
    host.engine_host = "tcp://npus:2376"
    told = "warning: the engine is on another host, tcp://npus:2376, and cards, driver and folders are read from"
    assert told in host("run", "quickstart", "--npus", "none").err
    host.engine_host = "unix:///run/docker.sock"
    assert "another host" not in host("run", "quickstart", "--npus", "none").err


def test_npus_for_an_image_on_the_standin_are_noted(host: Host) -> None:
    host.has(cards=(0,))
    told = "note: quickstart is built on the stand-in base, which has no CANN: no NPU works in it"
    assert told in host("run", "quickstart", "--npus", "all").err
    assert told in host("run", "quickstart", "--npus", "all", "--print", "--format", "pod").err
    assert told not in host("run", "quickstart", "--npus", "none").err
    assert told not in host("run", "verl-npu", "--arch", "arm64", "--print", root=ROOT).err


def test_another_user_than_the_images(host: Host) -> None:
    """Case U01: a number without a name, in an image that is root's."""
    host.has(cards=(0, 1))
    done = host("run", "quickstart", "--npus", "all", "--user", "4321:100")
    assert ("--user", "4321:100") in pairwise(host.started)
    assert not [word for word in host.started if ".cache" in word], "below /root, which is closed to that user"
    assert "note: the image runs as root: uid 4321 has no home and no folder for caches in it" in done.err
    assert "note: uid 4321 has no name in the image: HCCL between several cards fails" in done.err
    assert "HCCL between" not in host("run", "quickstart", "--user", "4321", "--npus", "1").err
    root = host.start("shell", "quickstart", "--npus", "all", "--user", "0")
    assert [word for word in root if ".cache" in word], "root as ever"
    wrong = host("run", "quickstart", "--user", "alice")
    assert (wrong.code, wrong.err.splitlines()[-1]) == (
        ExitCode.USAGE, '  → UID or UID:GID, as "$(id -u):$(id -g)"'
    )  # fmt: skip


def test_a_volume_that_does_not_exist_is_a_warning(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    given = [f"{tmp_path}/dta:/a", f"{tmp_path}/data:/b", "./dta:/c", "./data:/d", "named:/e"]
    done = host("run", "quickstart", "--npus", "none", *(word for volume in given for word in ("-v", volume)))
    said = re.findall(r"warning: -v (\S+): it does not exist, and docker makes an empty folder there", done.err)
    assert said == [given[0], given[2]]
    assert [b for a, b in pairwise(host.started) if a == "-v"][-5:] == given


@pytest.mark.parametrize(("word", "cards"), [("all", 2), ("ALL", 2), ("None", 0), ("none", 0)])
def test_all_cards_and_none_by_name(host: Host, word: str, cards: int) -> None:
    host.has(cards=(0, 1))
    started = host.start("run", "quickstart", "--npus", word)
    assert sum("/dev/davinci" in text for text in started) == (cards and cards + 1), "and the manager"


def test_a_job_without_an_engine_is_printed_and_not_started(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_engine", without_engine)
    done = host("run", "quickstart", "--npus", "none", "--no-caches", "--", "python", "train.py")
    assert done.code == ExitCode.UNABLE
    assert " ".join(done.out.split()).startswith("docker run \\ --rm")
    assert "python \\ train.py" in " ".join(done.out.split())
    assert "no Docker engine is running" in done.err
    assert "`python3 build.py shell quickstart --npus none -- COMMAND` needs none" in done.err
    assert not host.started


def test_a_shell_without_an_engine_is_a_box(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []

    def called(command: Sequence[str], **_more: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 7)

    config = {"Env": ["PATH=/opt/venv/bin:/bin"]}
    store = SimpleNamespace(lowers=lambda _id: (Path("/layers/one"),))
    place = SimpleNamespace(
        store=store,
        needed=lambda *_: SimpleNamespace(id="sha256:1"),
        attributes=lambda _id: {"Config": config},
        command=lambda box: box_command(box, Path("/scratch")),
    )
    monkeypatch.setattr(module, "find_engine", without_engine)
    monkeypatch.setattr(module, "why_not", lambda _cache: "")
    monkeypatch.setattr(module, "store_place", lambda _context: place)
    monkeypatch.setattr(subprocess, "run", called)
    with pytest.raises(SystemExit) as caught:
        host("shell", "quickstart", "--npus", "none", "--no-caches")
    assert caught.value.code == 7
    assert ran[0][-2:] == ("bash", "-l")
    assert "--net" not in ran[0]  # the host's network
    with pytest.raises(SystemExit):
        host("shell", "quickstart", "--npus", "none", "--no-caches", "--", "sh", "-c", "exit 7")
    assert ran.pop()[-3:] == ("sh", "-c", "exit 7")
    with pytest.raises(SystemExit):
        host("shell", "quickstart", "--npus", "none", "--no-caches", "-v", "./data:/data", "-v", "..:/up:ro")
    script = next(word for word in ran.pop() if "/data" in word)
    assert f"bind {Path.cwd()}/data /data ,nodev" in script.splitlines()
    assert f"bind {Path.cwd()}/.. /up ,nodev,ro" in script.splitlines()
    done = host("shell", "quickstart", "--npus", "none", "--no-caches", "-v", "data:/data")
    assert (done.code, len(ran)) == (ExitCode.UNABLE, 1)
    assert "-v data:/data: this is a volume of Docker" in done.err
    assert "-v DIR:/data" in done.err


def test_a_shell_without_an_engine_and_boxes_names_what_is_missing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_engine", without_engine)
    monkeypatch.setattr(module, "why_not", lambda _cache: "only root can")
    done = host("shell", "quickstart", "--npus", "none", "--no-caches")
    assert done.code == ExitCode.UNABLE
    assert "no Docker engine is running, and images cannot run without one here: only root can" in done.err
    assert "install Docker" in done.err


def without_engine(*_args: object, **_more: object) -> None:
    raise NoEngineError("no Docker engine is running", hint="install Docker")


def test_a_shell_is_opened(host: Host) -> None:
    words = host.start("shell", "quickstart", "--npus", "none", "--no-caches")
    assert words[-2:] == ["bash", "-l"]
    assert words[:3] == ["run", "--rm", "--init"]
    assert "quickstart:" in words[-3]
    words = host.start("shell", "quickstart", "--npus", "none", "--no-caches", "--", "python", "-V")
    assert words[-2:] == ["python", "-V"]


def test_the_runtime_is_asked_for_before_anything_starts(host: Host) -> None:
    host.has(cards=(0, 1))
    done = host("run", "quickstart", "--runtime", "ascend")
    assert (done.code, host.started) == (ExitCode.UNABLE, [])
    assert "no runtime 'ascend', only runc" in done.err
    assert "leave --runtime out" in done.err
    host.runtimes.add("ascend")
    words = host.start("run", "quickstart", "--runtime", "ascend", "--npus", "1")
    assert "ASCEND_VISIBLE_DEVICES=1" in words
    assert "--device" not in words
    assert words[words.index("--runtime") + 1] == "ascend"


def test_the_environments_choice_of_cards_is_checked(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.has(cards=(0, 1))
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("TOKEN", "secret")
    words = host.start("run", "quickstart", "--npus", "all", "-e", "ASCEND_RT_VISIBLE_DEVICES", "-e", "TOKEN")
    assert "ASCEND_RT_VISIBLE_DEVICES=1" in words
    assert "TOKEN" in words
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "2")
    done = host("run", "quickstart", "--npus", "all", "-e", "ASCEND_RT_VISIBLE_DEVICES")
    assert done.code == ExitCode.USAGE
    assert "index 2 outside 0..1" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--npus", "2"],
            ["no card 2 on this host", "NPUS may name 0,1: N of /dev/davinciN, Phy-ID"],
        ),
        (["--npus", "0-3", "--runtime", "ascend"], ["no card 2, 3"]),
    ],
)
def test_what_does_not_exist_is_not_started(host: Host, words: list[str], says: list[str]) -> None:
    host.has(cards=(0, 1))
    done = host("run", "quickstart", "--npus", "all", *words)
    assert (done.code, host.started) == (ExitCode.UNABLE, [])
    assert all(word in done.err for word in says), done.err


@pytest.mark.parametrize("command", ["run", "shell"])
def test_an_image_on_the_standin_gets_no_npu_unless_one_is_asked_for(host: Host, command: str) -> None:
    assert not [word for word in host.start(command, "quickstart") if "davinci" in word]
    host.has(cards=(0,))
    assert not [word for word in host.start(command, "quickstart") if "davinci" in word]
    done = host(command, "quickstart")
    assert (done.code, "no NPU works in it" in done.err) == (0, False)


@pytest.mark.parametrize("command", ["run", "shell"])
def test_a_host_without_npus_starts_nothing(host: Host, command: str) -> None:
    done = host(command, "quickstart", "--npus", "all")
    assert (done.code, host.started) == (ExitCode.UNABLE, [])
    assert "NPUS=none" in done.err
    assert not (host.home / ".cache").exists(), "nothing started, nothing made"


# What is printed


def test_the_full_model_is_printed_and_what_is_missing_here_is_noted(host: Host) -> None:
    host.has(DCMI, "/usr/bin/npu-smi", cards=(0, 1))
    done = host("run", "quickstart", "--npus", "all", "--print")
    words = shlex.split(done.out.replace("\\\n", " "))
    assert words.count("--device") == 8 + 3
    assert "type=bind,source=/usr/bin/npu-smi,target=/usr/local/bin/npu-smi,readonly" in words
    assert f"note: missing on this host: cards 2-7, {', '.join(DRIVER)}\n" in done.err
    assert not (host.home / ".cache").exists()


def test_the_interface_is_named_to_all_that_talk_by_it(host: Host) -> None:
    done = host("run", "quickstart", "--npus", "all", "--print", "--network", "host", "--interface", "lo")
    assert "-e GLOO_SOCKET_IFNAME=lo \\\n" in done.out
    assert "-e HCCL_SOCKET_IFNAME=lo " in done.out
    assert f"source={HCCN}," in done.out
    assert HCCN in done.err.partition("missing on this host")[2]


def test_a_cache_with_a_colon_in_its_path_is_mounted(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "c:d"))
    started = host.start("run", "quickstart", "--npus", "none")
    mounts = [value for option, value in pairwise(started) if option == "--mount"]
    assert mounts[:1] == [f"type=bind,source={tmp_path}/c:d,target=/root/.cache/huggingface"]
    assert (tmp_path / "c:d").is_dir()


def test_a_leftover_ranktable_is_left_out(host: Host) -> None:
    host.has(RANKTABLE)
    (host.root / RANKTABLE.lstrip("/")).write_text(json.dumps({"version": "1.2"}))
    done = host("run", "quickstart", "--npus", "all", "--print", "--network", "host")
    assert f"note: {RANKTABLE} is of version 1.2, HCCL takes 1.0 on this chip: not mounted" in done.err
    assert RANKTABLE not in done.out


def test_compose(host: Host) -> None:
    (host.home / ".cache/huggingface").mkdir(parents=True)
    done = host("run", "quickstart", "--print", "--format", "compose", "--npus", "0,3", "-v", "/data:/data")
    value = yaml.safe_load(done.out)
    assert compose_faults(value) == []
    service = value["services"]["quickstart"]
    assert [device.partition(":")[0] for device in service["devices"]][:2] == ["/dev/davinci0", "/dev/davinci3"]
    assert service["environment"] == {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}
    assert service["volumes"][-2]["source"] == f"{host.home}/.cache/huggingface"


def test_a_cluster_is_no_host_of_ours(host: Host) -> None:
    (host.home / ".cache/huggingface").mkdir(parents=True)
    words = ("--network", "host", "--interface", "bond0", "--chip", "a3", "--arch", "amd64")
    done = host("run", "quickstart", "--npus", "all", "--print", "--format", "pod", *words)
    value = yaml.safe_load(done.out)
    assert kubernetes_faults(value) == []
    assert value["spec"]["containers"][0]["resources"]["limits"] == {"huawei.com/Ascend910": 16}
    assert ".cache" not in done.out
    assert "missing on this host" not in done.err
    assert "names no registry" in done.err


def test_a_ray_cluster_of_n_nodes(host: Host) -> None:
    done = host(
        "run", "quickstart", "--npus", "all", "--print", "--format", "raycluster", "--nodes", "3", "--name", "Big_Run"
    )
    value = yaml.safe_load(done.out)
    assert ray_faults(value) == []
    assert (value["metadata"]["name"], value["spec"]["rayVersion"]) == ("big-run", "2.50.0")
    assert value["spec"]["workerGroupSpecs"][0]["replicas"] == 2


@pytest.mark.parametrize("form", ["docker", "compose", "pod", "raycluster"])
def test_what_is_printed_for_elsewhere_names_the_image_where_a_registry_has_it(host: Host, form: str) -> None:
    local = host("run", "quickstart", "--npus", "all", "--print", "--format", form)
    done = host(
        "run", "quickstart", "--npus", "all", "--print", "--format", form, "--registry", "registry.example:5000/team/"
    )
    (name,) = set(re.findall(r"quickstart:\S+", local.out))
    assert done.out == local.out.replace(name, f"registry.example:5000/team/{name}")
    is_cluster = form in {"pod", "raycluster"}
    assert ("names no registry" in local.err) is is_cluster
    assert "names no registry" not in done.err
    assert ("give imagePullSecrets to the pods" in done.err) is is_cluster


def test_a_printed_command_names_the_caches_that_it_mounts(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed may be started elsewhere, where docker finds no such folder and starts nothing."""
    models = tmp_path / "models"
    models.mkdir()
    monkeypatch.setenv("HF_HOME", str(models))
    for form in ("docker", "compose"):
        done = host("run", "quickstart", "--npus", "all", "--print", "--format", form)
        assert str(models) in done.out
        assert f"{models} is mounted" in done.err or f"{models} and" in done.err
        assert "create it or use --no-caches" in done.err
        for words in (("--no-caches",), ("--registry", "registry.example/team")):
            without = host("run", "quickstart", "--npus", "all", "--print", "--format", form, *words)
            assert str(models) not in without.out + without.err
    assert "has to be there: `python3 build.py push` puts it there" in without.err


def test_notes_for_a_cluster_name_what_only_its_admin_knows(host: Host) -> None:
    command = ("run", "quickstart", "--npus", "all", "--print", "--format", "raycluster", "--nodes", "4")
    told = ("nodeSelector", "no folder of models or data", "NETWORK=host INTERFACE=name")
    said = host(*command).err
    assert [words for words in told if words not in said] == []
    said = host(*command, "--network", "host", "--interface", "lo", "-v", "/data:/data", "--npus", "none").err
    assert [words for words in told if words in said] == []


def mounts_of(words: list[str]) -> set[tuple[str, ...]]:
    """(source, target, ro or nothing) of -v and --mount alike."""
    plain = {tuple(value.split(":")) for option, value in pairwise(words) if option == "-v"}
    fields = [value.split(",") for option, value in pairwise(words) if option == "--mount"]
    long = {tuple(f.partition("=")[2] or "ro" for f in row if f != "type=bind") for row in fields}
    return plain | long


def test_a_whole_host_starts_what_is_printed(host: Host) -> None:
    host.has(DCMI, *DRIVER, "/usr/local/bin/npu-smi", cards=tuple(range(8)))
    (host.home / ".cache/huggingface").mkdir(parents=True)
    (host.home / ".cache/modelscope").mkdir(parents=True)
    words = (
        "run",
        "quickstart",
        "--npus",
        "0,3",
        "--name",
        "mine",
        "-v",
        "/tmp:/x",
        "-e",
        "A=b c",
        "--network",
        "none",
    )
    done = host(*words, "--print", "--", "python", "-c", "print('$HOME')")
    printed = shlex.split(done.out.replace("\\\n", " "))[1:]
    started = host.start(*words, "--", "python", "-c", "print('$HOME')")
    assert mounts_of(started) == mounts_of(printed)
    kinds = {"-v", "--mount"}

    def rest(line: list[str]) -> list[str]:
        pairs = list(pairwise(["", *line]))
        return [word for before, word in pairs if word not in {*kinds, "-it", "-i"} and before not in kinds]

    assert rest(started) == rest(printed)


# Wrong use


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--format", "compose"], ["--format compose is text", "--print"]),
        (["run", "--format", "compos", "--print"], ["'compos'", "compose"]),
        (
            ["run", "--nodes", "2", "--print"],
            ["--nodes is for raycluster and rayjob, not docker", "--format raycluster"],
        ),
        *(
            (
                ["run", "--nodes", "2", "--format", form, "--print"],
                [f"--nodes is for raycluster and rayjob, not {form}"],
            )
            for form in ("pod", "job", "compose")
        ),
        (["run", "--nodes", "0", "--format", "raycluster", "--print"], ["--nodes: '0'", "1 to 9999"]),
        (["run", "--nodes", "100000000", "--format", "raycluster", "--print"], ["--nodes: '100000000'", "1 to 9999"]),
        (
            ["run", "--print", "--npus", "all", "-e", f"ASCEND_RT_VISIBLE_DEVICES={'9' * 5000}"],
            ["outside 0..7", "from 0"],
        ),
        (["run", "--print", "--npus", "none", "-e", "=x"], ["-e '=x' is not a variable", "NAME=VALUE"]),
        (["run", "--detach", "--format", "pod", "--print"], ["--detach"]),
        (["run", "--format", "job", "--print"], ["a Job needs a command", "`--`"]),
        (["run", "--print", "--interface", "lo"], ["--interface", "NETWORK=host"]),
        (["run", "--print", "--network", "host", "--interface", "eth99"], ["no 'eth99'", "ip link"]),
        (["run", "--print", "--network", "bridge"], ["'bridge'", "host"]),
        (["run", "--print", "--runtime", "ascent"], ["'ascent'", "ascend"]),
        (["run", "--print", "--runtime", "ascend", "--npus", "none"], ["the runtime ascend adds NPUs"]),
        (["run", "--print", "--npus", "all", "-e", "ASCEND_VISIBLE_DEVICES=0"], ["ASCEND_VISIBLE_DEVICES", "--npus"]),
        (["run", "--print", "--dev", "verl=/"], ["unknown option --dev", "-v DIR:/opt/src/NAME"]),
        (["run", "--registry", "registry.example"], ["--registry is only for what --print prints", "build.py pull"]),
        (["run", "--print", "--registry", ""], ["REGISTRY is not set"]),
        (["run", "--print", "--registry", "registry.example/a:b"], ["REGISTRY", "it has a tag"]),
        (["shell", "--registry", "registry.example"], ["unknown option --registry"]),
        (["shell", "--print"], ["unknown option --print"]),
        (["shell", "--detach"], ["unknown option --detach"]),
    ],
    ids=" ".join,
)
def test_wrong_use(host: Host, words: list[str], says: list[str]) -> None:
    cut = words.index("--") if "--" in words else len(words)
    done = host(words[0], "quickstart", *words[1:cut], *words[cut:])
    assert (done.code, done.out, host.started) == (ExitCode.USAGE, "", [])
    assert all(word in done.err for word in says), done.err
    assert "names no registry" not in done.err, "what is printed is told of when it is printed"


def test_the_platform_of_a_foreign_image_is_named(host: Host) -> None:
    host.has(cards=(0,))
    foreign = host.start("run", "verl-npu", "--arch", "arm64", "--no-caches", root=ROOT)
    assert ("--platform", "linux/arm64") in pairwise(foreign)
    assert "--platform" not in host.start("run", "quickstart", "--no-caches")
    printed = host("run", "verl-npu", "--arch", "arm64", "--print", root=ROOT).out
    assert "--platform" not in printed, "the host that it is for may be of that platform"


def test_the_printed_arch_is_the_images(host: Host) -> None:
    done = host("run", "verl-npu", "--arch", "arm64", "--print", "--format", "pod", root=ROOT)
    assert yaml.safe_load(done.out)["spec"]["nodeSelector"] == {"kubernetes.io/arch": Arch.ARM64.value}


@pytest.mark.parametrize(
    ("shown", "code"), [(("0xd803",), 4), (("0xd802",), 0), (("0xd802", "0xd803"), 0), (("0xffff",), 0), ((), 0)]
)
def test_an_image_of_another_chip_than_the_hosts_is_not_started(host: Host, shown: tuple[str, ...], code: int) -> None:
    """Case W2: by the PCI bus. What that does not show, or shows of no known chip, is left to the user."""
    host.has(cards=(0,))
    for number, device in enumerate(shown):
        folder = host.root / f"sys/bus/pci/devices/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        for name, text in (("vendor", "0x19e5"), ("device", device), ("class", "0x120000")):
            (folder / name).write_text(f"{text}\n")
    done = host("run", "quickstart", "--npus", "all", "--detach", "--", "true")
    assert done.code == code, done.err
    if code:
        assert "the image is for chip 910b, and this host has a3" in done.err
        assert "CHIP=a3" in done.err
        assert host("run", "quickstart", "--npus", "none", "--", "true").code == 0
