"""Stages of tiny Dockerfiles, made in boxes."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from small_root import small_root

from cannery.build.io.secrets import NO_SECRETS, Secrets
from cannery.build.io.view import Look, make_view
from cannery.errors import BuildFailedError, NetworkError
from cannery.sandbox.io.able import why_not
from cannery.sandbox.io.stages import Root, StageRequest, make_stages
from cannery.store.io.packed import inflated
from cannery.store.io.store import Store

with tempfile.TemporaryDirectory() as tried:
    WHY = why_not(Path(tried))
pytestmark = pytest.mark.skipif(bool(WHY), reason=f"no boxes here: {WHY}")
ROOT = Path(__file__).parents[2]
DOCKERFILE = """\
FROM base AS system
RUN --mount=type=tmpfs,target=/run \\
    --mount=type=bind,source=tools/x.sh,target=/run/cannery/x.sh \\
    --mount=type=secret,id=ca \\
    --mount=type=secret,id=proxies \\
    sh /run/cannery/x.sh words
FROM --platform=$BUILDPLATFORM build AS first
RUN --network=none mkdir -p /out/opt && echo first >/out/opt/first && find /out -exec touch -d @1 {} +
FROM build AS native
ENV \\
    WORDS="a \\"b\\" \\$c"
FROM native AS made
RUN --network=none mkdir -p /out && echo "$WORDS" >/out/words
FROM first AS second
RUN --network=none --mount=type=bind,from=made,source=/out,target=/run/made \\
    rm -r /out && mkdir -p /out/opt/second && cp /run/made/words /out/opt/second \\
    && cat /x.mark >>/out/opt/second/words && find /out -exec touch -d @2 {} +
FROM system AS foundation
COPY --link --from=first /out/ /
COPY --link --from=second /out/ /
WORKDIR /opt
"""
SCRIPT = """\
echo "$1" >/etc/made
cat /run/secrets/ca >>/etc/made
ls /run /run/secrets >>/etc/made
rm /gone
echo left >/tmp/left
touch -d @3 /etc/made /etc
"""
EMPTY = f"sha256:{hashlib.sha256(bytes(1024)).hexdigest()}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = small_root(tmp_path_factory.mktemp("root") / "base")
    (root / "gone").touch()
    (root / "x.mark").write_text("mark\n", encoding="utf-8")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A rendered folder."""
    (tmp_path / "out/tools").mkdir(parents=True)
    (tmp_path / "out/Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
    (tmp_path / "out/tools/x.sh").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "out/no-secret").touch()
    (tmp_path / "secret").write_text("hidden-words\n", encoding="utf-8")
    return tmp_path / "out"


@dataclass(frozen=True)
class NewLayer:
    """A layer that was made: its diff id, and its tar."""

    diff_id: str
    tar: bytes


def make(folder: Path, base: Path, target: str = "foundation", **options: object) -> list[NewLayer]:
    cache, screen = folder.parent / "cache", io.StringIO()
    view = partial(make_view, screen, Look({}), is_terminal=False, clock=time.monotonic)
    given: dict[str, object] = {"existing": {}, "secrets": NO_SECRETS, **options}
    given |= {
        "base": lambda _here: Root((base,), {"PATH": "/bin", "HOME": "/"}),
        "store": (store := Store(cache / "images")),
    }
    request = StageRequest(folder, target, cache=cache, log=folder / "log/build.log", view=view, **given)  # type: ignore[arg-type]
    try:
        layers = [store.needed_layer(diff_id) for diff_id in make_stages(request)]
        return [NewLayer(one.diff_id, b"".join(inflated([store.blob_path(one.digest).read_bytes()]))) for one in layers]
    finally:
        assert list((cache / "boxes").iterdir()) == []


def content(layer: NewLayer) -> dict[str, bytes]:
    """The paths of a layer and what its files hold; its digest is its own."""
    assert layer.diff_id == f"sha256:{hashlib.sha256(layer.tar).hexdigest()}"
    with tarfile.open(fileobj=io.BytesIO(layer.tar)) as archive:
        streams = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        return {name: stream.read() if stream else b"" for name, stream in streams.items()}


def test_a_target_is_the_layers_of_its_chain_and_of_what_it_copies(folder: Path, base: Path) -> None:
    secret = Secrets({"CANNERY_CA_FILE": str(folder.parent / "secret")}, ("hidden-words",))
    system, first, second, workdir = make(folder, base, secrets=secret)
    assert content(system) == {
        ".wh.gone": b"",
        "etc": b"",
        "etc/made": b"words\nhidden-words\n/run:\ncannery\nsecrets\n\n/run/secrets:\nca\nproxies\n",
    }
    assert content(first) == {"opt": b"", "opt/first": b"first\n"}
    assert content(second) == {"opt": b"", "opt/second": b"", "opt/second/words": b'a "b" $c\nmark\n'}
    assert workdir.diff_id == EMPTY
    with tarfile.open(fileobj=io.BytesIO(second.tar)) as archive:
        assert {one.mtime for one in archive} == {2}
    assert (base / "gone").exists()


def test_two_runs_make_equal_layers(folder: Path, base: Path) -> None:
    once, again = (make(folder, base) for _ in range(2))
    assert once == again


def test_the_log_has_each_step_and_what_it_printed_but_no_secret(folder: Path, base: Path) -> None:
    script = f"{SCRIPT}cat /run/secrets/ca; echo printed; echo more >&2\n"
    (folder / "tools/x.sh").write_text(script, encoding="utf-8")
    make(folder, base, secrets=Secrets({"CANNERY_CA_FILE": str(folder.parent / "secret")}, ("hidden-words",)))
    log = (folder / "log/build.log").read_text(encoding="utf-8")
    for words in (
        "[system] printed",
        "[system] more",
        "[system] ***",
        "[first] --- done",
        "[foundation] --- COPY --link",
    ):
        assert words in log
    assert "hidden-words" not in log


def test_a_stage_that_is_there_is_not_made(folder: Path, base: Path, tmp_path: Path) -> None:
    """As sources are built on wheels: what the image has of them is not in the new layers."""
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/of-wheels").touch()
    text = "FROM nothing AS wheels\nRUN false\nFROM wheels AS made\nRUN mkdir /out && cp /of-wheels /out\n"
    (folder / "Dockerfile").write_text(f"{text}FROM wheels AS sources\nCOPY --link --from=made /out/ /\n")
    given = {"wheels": Root((base, tmp_path / "wheels"), {"PATH": "/bin"})}
    (layer,) = make(folder, base, "sources", existing=given)
    assert content(layer) == {"of-wheels": b""}


@pytest.mark.parametrize("code", [1, 3, 137])
def test_a_step_that_fails_is_the_error_of_a_bake(folder: Path, base: Path, code: int) -> None:
    (folder / "tools/x.sh").write_text(f"echo before; echo last >&2; exit {code}\n", encoding="utf-8")
    with pytest.raises(BuildFailedError) as caught:
        make(folder, base)
    assert caught.value.where == "stage system"
    assert f"exit code {code}" in caught.value.what
    assert "  | before\n  | last" in caught.value.what
    assert str(folder / "log/build.log") in caught.value.what


def test_a_mirror_that_is_away_is_a_network_error(folder: Path, base: Path) -> None:
    text = (folder / "Dockerfile").read_text(encoding="utf-8").replace("x.sh", "system.sh")
    (folder / "Dockerfile").write_text(text, encoding="utf-8")
    script = "echo \"Temporary failure resolving 'deb.example'\"; exit 100\n"
    (folder / "tools/system.sh").write_text(script, encoding="utf-8")
    with pytest.raises(NetworkError):
        make(folder, base)


def test_a_file_that_is_not_there_is_named(folder: Path, base: Path) -> None:
    (folder / "tools/x.sh").unlink()
    with pytest.raises(BuildFailedError, match=r"tools/x\.sh"):
        make(folder, base)


KILLED = """\
import io, signal, sys, time
from functools import partial
from pathlib import Path
from cannery.build.io.secrets import NO_SECRETS
from cannery.build.io.view import Look, make_view
from cannery.cli import _interrupt
from cannery.sandbox.io.stages import Root, StageRequest, make_stages
from cannery.store.io.store import Store
folder, base = Path(sys.argv[1]), Path(sys.argv[2])
signal.signal(signal.SIGTERM, _interrupt)  # as main does
view = partial(make_view, sys.stderr, Look({}), is_terminal=False, clock=time.monotonic)
root = Root((base,), {"PATH": "/bin"})
cache = folder.parent / "cache"
given = {"secrets": NO_SECRETS, "store": Store(cache / "images")}
given |= {"cache": cache, "view": view, "log": folder / "log/build.log"}
make_stages(StageRequest(folder, "foundation", {}, lambda here: root, **given))
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing_that_runs(folder: Path, base: Path, ending: signal.Signals) -> None:
    seconds = 200_000 + os.getpid()
    (folder / "tools/x.sh").write_text(f"echo begun; sleep {seconds}\n", encoding="utf-8")
    log = folder / "log/build.log"
    words = (sys.executable, "-c", KILLED, folder, base)
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not log.exists() or "begun" not in log.read_text(encoding="utf-8"):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        process.send_signal(ending)
        process.wait(30)
        assert process.stderr is not None
        assert ("KeyboardInterrupt" in process.stderr.read()) is (ending is not signal.SIGKILL)
    deadline = time.monotonic() + 20
    while str(seconds).encode() in b"".join(map(_words, Path("/proc").glob("[0-9]*/cmdline"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(list((folder.parent / "cache/boxes").iterdir())) == (ending is signal.SIGKILL)
    (folder / "tools/x.sh").write_text(SCRIPT, encoding="utf-8")
    assert len(make(folder, base)) == 4


def _words(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
