"""`build.py verify --against` with a docker that is a script: a made-up image is looked at, and judged."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker.errors
import pytest
from test_store import LOWER, put

from cannery import cli
from cannery.against.io import read as image_read
from cannery.against.io.look import look
from cannery.against.io.read import find_image, read_image
from cannery.commands import place
from cannery.engine.io.find import Engine
from cannery.engine.oci import EngineImage
from cannery.errors import UnableError, UsageError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.lock.lock import parse_lock
from cannery.store.io.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.sandbox.box import Box

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = "/usr/local/python3.11.13"
SITE = f"{HOME}/lib/python3.11/site-packages"
CANN = "/usr/local/Ascend/ascend-toolkit"
ENV = [
    f"PATH={HOME}/bin:/usr/bin",
    "http_proxy=http://name:word@127.0.0.1:7333",
    "LD_PRELOAD=/usr/local/lib/libjemalloc.so.2",
]
# A docker of this host whose one image is a folder: `run` looks at it, as the script in the image would.
DOCKER = """\
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
settings = json.loads((here / "settings.json").read_text())
with open(here / "calls", "a") as notes:
    print(json.dumps(words), file=notes)
if words[0] == "run":
    if settings["broken"]:
        print("exec: python3: not found", file=sys.stderr)
        sys.exit(127)
    sys.argv = ["-", words[-1]]
    place = f"{settings['root']!r}, {settings['search']!r}"
    script = sys.stdin.read().replace("*json.loads(sys.argv[1])", f"*json.loads(sys.argv[1]), {place}")
    exec(compile(script, "look", "exec"), {"__name__": "__main__"})
"""


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def dist(name: str, version: str, site: str = SITE) -> dict[str, str]:
    path = f"{site}/{name.replace('-', '_')}-{version}.dist-info/METADATA"
    return {path: f"Name: {name}\nVersion: {version}\n\n{'x' * 9000}"}


def hand_made(root: Path) -> None:
    """What somebody who followed verl_npu's guide has: the lock's packages, verl from git, one other torch_npu."""
    lock = parse_lock((ROOT / "images/locks/verl-npu/py3.11-arm64.txt").read_text(), "lock")
    write(root, {key: text for p in lock.packages for key, text in dist(p.name, p.version).items()})
    shutil.rmtree(root / f"{SITE}/torch_npu-2.7.1.dist-info".lstrip("/"))
    write(root, dist("torch-npu", "2.5.1"))
    write(root, dist("verl", "0.5.0.dev0"))
    write(
        root,
        {
            f"{CANN}/8.3.RC1/aarch64-linux/ascend_toolkit_install.info": "package_name=Ascend\nversion=8.3.RC1\n",
            "/usr/local/Ascend/nnal/atb/8.3.RC1/version.info": "    Ascend-cann-atb : 8.3.RC1\n".lstrip(),
            "/usr/lib/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
            "/workspace/verl/.git/HEAD": "no head",
            "/root/.netrc": "machine m login l password p",
            "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2": "ELF",
        },
    )
    for name, target in {
        f"{CANN}/latest": "8.3.RC1",
        "/usr/local/Ascend/nnal/atb/latest": "8.3.RC1",
        "/etc/os-release": "../usr/lib/os-release",
        "/usr/local/lib/libjemalloc.so.2": "../../lib/aarch64-linux-gnu/libjemalloc.so.2",
    }.items():
        (root / name.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / name.lstrip("/")).symlink_to(target)


@dataclass
class Image:
    """What docker's SDK gives of an image."""

    id: str
    attrs: dict[str, Any]


class Client:
    """The SDK's client, with one image."""

    def __init__(self, image: Image | None) -> None:
        self.image = image

    @property
    def images(self) -> Client:
        return self

    def get(self, reference: str) -> Image:
        if self.image is None:
            raise docker.errors.ImageNotFound("none")
        return self.image


class Host:
    """An engine of amd64 whose one image is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "rootfs"
        self.root.mkdir()
        self.broken = False

    def engine(self) -> Engine:
        program = self.folder / "docker"
        search = [f"{self.root}{SITE}"]
        settings = {"broken": self.broken, "root": str(self.root), "search": search}
        (self.folder / "settings.json").write_text(json.dumps(settings))
        program.write_text(f"#!{sys.executable}\n{DOCKER}")
        program.chmod(0o755)
        versions = {"server_version": "26", "arch": "amd64"}
        return Engine("unix:///s", program, data_root=None, **versions)

    def place(self, client: Any = None) -> EnginePlace:  # noqa: ANN401 - the SDK's client, or a part of it
        return EnginePlace(self.engine(), client, dict(os.environ))

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def config(arch: str = "amd64") -> EngineImage:
    return EngineImage("sha256:" + "a" * 64, arch, 7, (), {}, ())


def test_what_is_seen_of_an_image(tmp_path: Path) -> None:
    hand_made(tmp_path)
    site = f"{tmp_path}{SITE}"
    write(tmp_path, {f"{SITE}/old-1.0.egg-info/PKG-INFO": "Name: Old\nVersion: 1.0\n"})
    write(tmp_path, {f"{SITE}/old-1.0.egg-info/requires.txt": "torch>=2\n"})
    write(tmp_path, {f"{SITE}/broken-1.dist-info/METADATA": "\0"})
    asked = [f"{CANN}/latest/aarch64-linux/ascend_toolkit_install.info"]
    seen = look(asked, f"{CANN}/latest", str(tmp_path), [site])
    packages = {row[0]: row for row in seen["packages"]}  # type: ignore[attr-defined]
    assert packages["verl"][1:] == ["0.5.0.dev0", []]
    assert packages["Old"][1:] == ["1.0", ["torch>=2"]]
    text = "package_name=Ascend\nversion=8.3.RC1\n"
    assert seen["versions"] == {
        asked[0]: [True, text],
        f"{CANN}/8.3.RC1/aarch64-linux/ascend_toolkit_install.info": [True, text],
    }
    assert set(seen["texts"]) == {"/etc/os-release", "/usr/lib/os-release"}  # type: ignore[call-overload]


def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    folder = tmp_path / "opt/cannery"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "manifest.json")
    assert look([], "/none", str(tmp_path), [])["texts"] == {}


def test_the_container_can_only_read(host: Host) -> None:
    write(host.root, dist("torch", "2.7.1"))
    seen = read_image(host.place(), config(), ())
    assert [row[:2] for row in seen["packages"]] == [["torch", "2.7.1"]]
    (call,) = host.calls
    assert call[:2] == ["run", "--rm"]
    for words in (["--network", "none"], ["--cap-drop", "ALL"], ["--security-opt", "no-new-privileges"]):
        assert words == call[call.index(words[0]) : call.index(words[0]) + 2]
    assert "--read-only" in call
    assert "--platform" not in call


def test_an_image_of_another_arch_runs_under_emulation(host: Host) -> None:
    read_image(host.place(), config("arm64"), ())
    (call,) = host.calls
    assert call[call.index("--platform") + 1] == "linux/arm64"


@pytest.mark.parametrize(("arch", "hint"), [("amd64", "has to work first"), ("arm64", "has to emulate")])
def test_an_image_whose_python_does_not_start(host: Host, arch: str, hint: str) -> None:
    host.broken = True
    with pytest.raises(UnableError, match="no Python of the image starts: exec: python3: not found") as caught:
        read_image(host.place(), config(arch), ())
    assert hint in caught.value.hint


def test_a_container_that_takes_too_long_is_removed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    place, calls = host.place(), []

    def run(command: tuple[str, ...], **_: object) -> None:
        calls.append(command[1])
        if command[1] == "run":
            raise KeyboardInterrupt

    monkeypatch.setattr(image_read, "run", run)
    with pytest.raises(KeyboardInterrupt):
        read_image(place, config(), ())
    assert calls == ["run", "rm"]


def test_what_an_engine_says_of_an_image(host: Host) -> None:
    attributes = {"Id": "sha256:1", "Architecture": "arm64", "Config": {"Env": ["A=b=c", "B="], "Labels": None}}
    found = find_image(host.place(Client(Image("sha256:1", attributes))), "mine:1")
    assert found == EngineImage("sha256:1", "arm64", 0, (), {}, (), env={"A": "b=c", "B": ""})
    with pytest.raises(UsageError, match="no image mine:1") as caught:
        find_image(host.place(Client(None)), "mine:1")
    assert "docker pull mine:1" in caught.value.hint


def test_an_image_of_the_store_is_looked_at_in_a_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Box] = []

    def command(_place: StorePlace, box: Box) -> tuple[str, ...]:
        boxes.append(box)
        return (sys.executable, *box.command[1:])

    monkeypatch.setattr(StorePlace, "command", command)
    monkeypatch.setattr(Store, "lowers", lambda *_: (tmp_path,))
    here = StorePlace(Store(tmp_path / "images"), dict(os.environ), "arm64", tmp_path)
    put(here.store, LOWER)
    found = find_image(here, "demo:1")
    assert (found.arch, found.env) == ("arm64", {"A": "1"})
    seen = read_image(here, found, ())
    assert "pytest" in {row[0] for row in seen["packages"]}
    assert (boxes[0].command[:2], boxes[0].env) == (("python3", "-"), {"A": "1", "LD_PRELOAD": ""})
    with pytest.raises(UsageError, match="no image demo:2 in this host's image store"):
        find_image(here, "demo:2")


# The command.


class Against:
    def __init__(self, host: Host, capture: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capture = capture
        name = "sha256:" + "b" * 64
        image = Image(name, {"Id": name, "Architecture": "arm64", "Config": {"Env": ENV}})
        self.client = Client(image)
        monkeypatch.setattr(place, "find_engine", lambda *_, **__: host.engine())
        monkeypatch.setattr(place, "docker_client", lambda _engine: self.client)
        # No store of this host counts.
        monkeypatch.setattr(place, "_store", lambda _context: Store(host.folder / "images"))

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = cli.main(("verify", *words), ROOT)
        said = self.capture.readouterr()
        assert "Traceback" not in said.out + said.err
        assert "defect" not in said.err
        return code, said.out, said.err


@pytest.fixture
def verify(host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Against:
    hand_made(host.root)
    return Against(host, capsys, monkeypatch)


def test_the_nearest_profile_of_a_hand_made_image(verify: Against) -> None:
    code, out, _ = verify("--against", "mine:1", "--all")
    lines = out.splitlines()
    assert (code, lines[-1].partition(":")[0]) == (6, "the nearest profile is verl-npu")
    assert "Python 3.11 at" in lines[0]
    assert "CANN 8.3.rc1" in lines[0]
    assert lines[2].startswith("  torch-npu 2.5.1: torch 2.7.1, wanted: torch 2.5.1")
    shares = {line.split()[0]: int(line.split()[1]) / int(line.split()[3]) for line in lines if " of " in line[:40]}
    assert set(shares) == {path.stem for path in (ROOT / "images/profiles").glob("*.yaml")}
    first, second, *_ = shares.values()
    assert first > 0.9 > 0.5 > second
    kinds = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert kinds[:3] == ["does not fit together:", "breaks first:", "missing:"]
    breaks, missing = lines.index("breaks first:"), lines.index("missing:")
    assert any(line.startswith("  torch-npu: 2.5.1, wanted: ") for line in lines[breaks:missing])
    assert any(line.startswith("  vllm-ascend: not there, wanted: ") for line in lines[missing:])
    assert not any(line.startswith("  verl: ") for line in lines)
    assert "name:word" not in out


def test_packages_that_do_not_fit_each_other_are_reported_first(host: Host, verify: Against) -> None:
    """torch 2.7.1 beside torch_npu 2.8.0.post2 and torchvision 0.23.0, which are made for torch 2.8.0."""
    shutil.rmtree(host.root)
    for name, version in (("torch", "2.7.1"), ("torchvision", "0.23.0"), ("torch_npu", "2.8.0.post2")):
        write(host.root, dist(name, version))
    write(host.root, {"/usr/local/Ascend/cann-8.5.0/aarch64-linux/ascend_toolkit_install.info": "version=8.5.0\n"})
    code, out, _ = verify("--against", "mine:1")
    assert code == 6
    assert [line.split("(")[0] for line in out.splitlines()[1:4]] == [
        "does not fit together:",
        "  torch-npu 2.8.0.post2: torch 2.7.1, wanted: torch 2.8.0 ",
        "  torchvision 0.23.0: torch 2.7.1, wanted: torch 2.8.0 ",
    ]
    assert "breaks first:" in out.splitlines()[4:]
    write(host.root, dist("vllm", "0.11.0"))
    last = verify("--against", "mine:1")[1].splitlines()[-1]
    assert last.startswith("the nearest profile is verl-qwen3.5: ")  # of its CANN the only one that has vllm


def test_a_profile_that_is_named(verify: Against) -> None:
    code, out, err = verify("verl-sglang", "--against", "mine:1")
    assert code == 6
    assert "profile verl-sglang: " in out.splitlines()[-1]
    assert "verl-npu" not in out.replace("/workspace", "")
    assert "under emulation" in err


def test_words_that_do_not_go_together(verify: Against) -> None:
    for words, said in (
        (("quickstart", "--against", ""), "is not an image reference"),
        (("--against", "mine:1", "--require-npu"), "--require-npu does not go with --against"),
        (("--against", "mine:1", "--json"), "--json does not go with --against"),
        (("--against", "mine:1", "--cann", "8.5.0"), "--cann does not go with --against"),
        (("quickstart", "--against", "mine:1", "--pin", "ray==2.60.0"), "--pin does not go with --against"),
        (("quickstar", "--against", "mine:1"), "did you mean quickstart?"),
        (("--against", "https://name:word@r.example/x"), "an image reference has no scheme"),
        ((), "PROFILE is missing"),
        (("--against", "Foo:1"), "--against: 'Foo:1' is not an image reference"),
        (("--against", "foo:" + "a" * 129), "is not an image reference"),
    ):
        code, _, err = verify(*words)
        assert code == 2
        assert said in err


def test_an_image_that_is_not_there(verify: Against) -> None:
    verify.client.image = None
    code, _, err = verify("--against", "mine:1")
    assert (code, "no image mine:1 on this engine" in err, "docker pull mine:1" in err) == (2, True, True)


def test_an_image_for_another_cpu(verify: Against) -> None:
    assert verify.client.image is not None
    verify.client.image.attrs["Architecture"] = "riscv64"
    code, _, err = verify("--against", "mine:1")
    assert code == 2
    assert "riscv64" in err


def test_only_a_script_of_the_standard_library_goes_into_the_image() -> None:
    text = image_read.SCRIPT.read_text()
    assert "cannery" not in text.split('"""', 2)[2].replace("/opt/cannery", "")
