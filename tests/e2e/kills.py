"""build.py killed at random moments, over and over, and what the same command makes of what was left.

    CANNERY_CACHE=/a/folder/of/its/own .venv/bin/python -m tests.e2e.kills [--rounds 1] [--seed 6] [--only push]

builds, pushes, saves, loads and bundles `quickstart`, and ends each command at a random moment: the leader alone or all
that it has started (SIGKILL), Ctrl-C, SIGTERM, the engine's own daemon. What can still speak has to end in order
(`faults_of_killed`). The command is then run again; it has to end with 0 and the id of an undisturbed build, and
`Bench.faults` looks at what is left. Prints a row for each kill; exit 1 where there is a fault. It works on an engine
of tools/engine.py for that cache alone, whose build cache it removes. The short version in the suite (test_kills.py)
has a small profile, and any engine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from docker_engine import engine as docker_engine
from docker_engine.daemon import Layout, daemons

from cannery.context import read_context
from cannery.engine.io.containers import LABEL, is_gone
from cannery.engine.io.find import find_engine
from cannery.errors import ExitCode
from cannery.util.io.files import sha256_file
from tests.e2e.engine_fixtures import PROFILE, ROOT, Cannery
from tests.e2e.registry import Registry, login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Stands in the environment of a killed run: whatever has it afterwards outlived it.
MARK = "CANNERY_KILLED_RUN"
# Seconds in which what was started by a killed run has to be gone.
GRACE = 20.0
# No run may take longer, in seconds: one that waits for a lock for good is a fault.
PATIENCE = 600.0
# Draws of a moment, each in half the time of the one before, until the command is still there to be killed.
DRAWS = 4
# Below the cache, but not of a run: the engine's own, and uv's, which looks after itself.
NOT_LOOKED_INTO = ("engine", "uv")


class How(StrEnum):
    """What ends a command."""

    LEADER = "kill -9 of build.py"
    TREE = "kill -9 of all its processes"
    INTERRUPT = "Ctrl-C"
    TERMINATE = "SIGTERM"
    ENGINE = "kill -9 of dockerd"


@dataclass(frozen=True)
class Scene:
    """A command, what is taken away before it, so that it has something to do, and about how long it takes then.

    `wrong` says what of that which the command has made is not whole.
    """

    name: str
    words: tuple[str, ...]
    prepare: Callable[[], None]
    seconds: float = 4.0
    wrong: Callable[[], tuple[str, ...]] = tuple


@dataclass(frozen=True)
class Row:
    """One kill: which command, how, after how many of how many seconds, in which phase, and what came of it."""

    scene: str
    how: How
    after: float
    of: float
    phase: str
    ended: int
    again: int
    seconds: float
    faults: tuple[str, ...]

    def __str__(self) -> str:
        found = "; ".join(self.faults) or "the same image, nothing left"
        moment = f"{self.after:.2f} of {self.of:.1f} s"
        return (
            f"| {self.scene} | {self.how} | {moment} | {self.phase} | {self.ended} "
            f"| {self.again} in {self.seconds:.0f} s | {found} |"
        )


HEAD = "| command | what ended it | moment | last word | exit | rerun | found |\n|---|---|---|---|---|---|---|"


@dataclass
class Bench:
    """A checkout, a cache of its own and an engine: build.py is run and killed here, in `folder`."""

    cannery: Cannery
    cache: Path
    profile: str
    folder: Path
    chance: random.Random
    options: tuple[str, ...] = ()
    times: dict[str, float] = field(default_factory=dict)
    table: dict[str, object] = field(default_factory=dict)
    pictures: dict[str, object] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The rendered folder; those of other images may lie beside it."""
        return Path(str(self.table["log"])).parent.parent

    @property
    def references(self) -> tuple[str, ...]:
        """The image's tags."""
        found = self.table["references"]
        assert isinstance(found, list)
        return tuple(found)

    @property
    def image(self) -> tuple[str, ...]:
        """The command that builds, by BuildKit: an image of `--no-cache` has the same id then.

        One that this host assembled has the same layers, and another id: BuildKit adds `ArgsEscaped`.
        """
        return ("image", self.profile, *self.options, "--with", "bake", "--json")

    def start(self, words: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
        """Start build.py with its own session, so that a kill of its group reaches nobody else."""
        line = self.cannery.command(*words)
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        env = {**os.environ, "CANNERY_CACHE": str(self.cache), "TMPDIR": str(temporary), MARK: str(os.getpid())}
        with said.open("wb") as stderr, said.with_suffix(".out").open("wb") as stdout:
            return subprocess.Popen(line, cwd=ROOT, env=env, stdout=stdout, stderr=stderr, start_new_session=True)

    def run(self, words: Sequence[str]) -> tuple[int, str, float]:
        """Run build.py to its end: its status, what it printed, seconds. One that does not end has status 124."""
        said, begun = self.folder / "run.err", time.monotonic()
        process = self.start(words, said)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            code = process.wait() and 124
        return code, said.with_suffix(".out").read_text(), time.monotonic() - begun

    def undisturbed(self) -> None:
        """Build the image as it should be, and remember what that leaves."""
        code, out, _ = self.run(self.image)
        assert code == 0, f"{code}\n{(self.folder / 'run.err').read_text()}"
        self.table = json.loads(out)
        self.pictures["out"] = picture(self.out)
        self.pictures |= {path.name: sha256_file(path) for path in (self.cache / "rootfs").glob("*.tar")}
        self.pictures["dangling"] = self._dangling()
        self.pictures["builders"] = self._builders()
        found = self.faults(0)
        assert not found, found  # nothing rewrites this module for pytest

    def turn(self, scene: Scene, how: How) -> Row:
        """Kill a scene once, run it again, and say what was found."""
        expected = most = self.times.get(scene.name, scene.seconds)
        for _ in range(DRAWS):
            scene.prepare()
            begun, after = time.time(), self.chance.uniform(0.1, most)
            ended, phase = self._killed(scene, how, after)
            if ended is not None:
                break
            most /= 2
        else:
            raise AssertionError(f"{scene.name} is over before it can be killed")
        killed = self.folder / "killed.err"
        found = faults_of_killed(how, ended, killed.read_text(errors="replace"))
        found += [f"half-written under its own name: {name}" for name in self._wrong_wheels(begun)]
        if how is How.LEADER:
            time.sleep(self.chance.choice((0.0, 0.5)))
        if how is How.ENGINE:
            docker_engine.start(Layout.of(self.cache), os.environ)
        code, out, seconds = self.run(scene.words)
        self.times[scene.name] = (expected + seconds) / 2
        found += [] if code == 0 else [f"exit {code}: {self._last()}"]
        if code == 0 and scene.words[0] == "image" and json.loads(out)["id"] != self.table["id"]:
            found.append(f"another image: {json.loads(out)['id']}")
        found += [*self.faults(begun), *scene.wrong()]
        return Row(scene.name, how, after, expected, phase, ended, code, seconds, tuple(found))

    def _last(self) -> str:
        return " / ".join((self.folder / "run.err").read_text().strip().splitlines()[-3:])

    def _killed(self, scene: Scene, how: How, after: float) -> tuple[int | None, str]:
        """Start a scene and end it; return its status (None: it was over before) and the last that it said."""
        said, begun = self.folder / "killed.err", time.time()
        process = self.start(scene.words, said)
        with suppress(subprocess.TimeoutExpired):
            process.wait(after)
            return None, ""
        match how:
            case How.TREE:
                kill_tree(process.pid)
            case How.ENGINE:
                for pid in daemons(Layout.of(self.cache)):
                    os.kill(pid, signal.SIGKILL)
            case _:
                numbers = {How.INTERRUPT: signal.SIGINT, How.TERMINATE: signal.SIGTERM}
                process.send_signal(numbers.get(how, signal.SIGKILL))
        status = process.wait(PATIENCE)
        lines = said.read_text(errors="replace").splitlines()
        log = self.out / "log/build.log"
        if log.is_file() and log.stat().st_mtime >= begun:  # it is told of all steps, where standard error folds some
            lines += [" ".join(line.split()[1:]) for line in log.read_text(errors="replace").splitlines()]
        return status, last_word(lines)

    def _wrong_wheels(self, since: float) -> Iterator[str]:
        for path in (self.cache / "wheels").glob("[0-9a-f][0-9a-f]/*/*"):
            is_new = path.suffix != ".part" and path.stat().st_ctime >= since
            if is_new and sha256_file(path) != path.parent.name:
                yield path.name

    def faults(self, since: float) -> list[str]:
        """Say what is wrong after a command that has ended with 0, with files that are newer than `since`."""
        found = [f"not whole: {name}" for name in self._wrong_wheels(since)] if since else []
        left = [name for name in self._leftovers() if name not in self.told]
        self.told += left
        found += [f"left: {name}" for name in left]
        if "out" in self.pictures and self.pictures["out"] != picture(self.out):
            found.append("out/ is another than after an undisturbed build")
        for path in (self.cache / "rootfs").glob("*.tar"):
            if path.name in self.pictures and sha256_file(path) != self.pictures[path.name]:
                found.append(f"not whole: {path.name}")
        for path in (self.cache / "verified").glob("*"):
            found += [] if "counts" in json.loads(path.read_text()) else [f"not whole: {path.name}"]
        found += (
            [] if self.pictures.get("dangling", self._dangling()) == self._dangling() else ["an image without a name"]
        )
        found += (
            [] if self.pictures.get("builders", self._builders()) == self._builders() else ["another buildx builder"]
        )
        for reference in self.references:
            done = self.cannery.docker("image", "inspect", "--format", "{{.Id}}", reference, check=False)
            found += (
                [] if done.stdout.strip() == self.table["id"] else [f"{reference} is {done.stdout.strip() or 'gone'}"]
            )
        return found + [f"still there: {name}" for name in self._remaining()]

    def _leftovers(self) -> list[str]:
        """Temporary files and folders in the cache, in out/ and in the temporary folder."""
        found = list((self.folder / "tmp").iterdir())
        for top in (self.cache, self.cannery.root / "out"):
            for folder, folders, files in os.walk(top):
                inner = [
                    name for name in folders if Path(folder, name) not in {self.cache / x for x in NOT_LOOKED_INTO}
                ]
                folders[:] = [name for name in inner if not name.startswith(".")]
                names = [*files, *inner]
                found += [Path(folder, name) for name in names if is_temporary(name)]
        return sorted(str(path) for path in found)

    def _remaining(self) -> list[str]:
        """Processes of killed runs and containers, as far as they do not end by themselves."""
        end = time.monotonic() + GRACE
        while True:
            found = [*marked(), *self._containers()]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.2)

    def _containers(self) -> list[str]:
        """Containers, but for those whose run goes on: it is another's, on the same engine."""
        form = '{{.Names}} {{.State}}\t{{.Label "' + LABEL + '"}}'
        lines = self.cannery.docker("ps", "--all", "--format", form).stdout.splitlines()
        pairs = [line.partition("\t")[::2] for line in lines]
        return [name for name, owner in pairs if not owner or is_gone(owner)]

    def _dangling(self) -> list[str]:
        """The ids of images without a name: sorted, for the engine lists those of one time in any order."""
        return sorted(self.cannery.docker("images", "--quiet", "--filter", "dangling=true").stdout.splitlines())

    def _builders(self) -> str:
        done = subprocess.run(
            self.cannery.engine.buildx_command("ls"), env=self.cannery.env, capture_output=True, text=True, check=True
        )
        return "\n".join(line.split()[0] for line in done.stdout.splitlines())

    def forget(self, *references: str) -> None:
        """Remove images from the engine."""
        self.cannery.docker("image", "rm", "--force", *references, check=False)

    def forget_base(self) -> None:
        """Remove the stand-in base from the engine."""
        code, out, _ = self.run(("plan", self.profile, *self.options, "--json"))
        assert code == 0, out
        self.forget(json.loads(out)["base"])

    def forget_rootfs(self) -> None:
        """Remove the stand-in's system from the cache."""
        for path in (self.cache / "rootfs").glob("*.tar"):
            path.unlink()

    def forget_wheels(self) -> None:
        """Remove one in three of the locked wheels, the large ones left out, and the rendered folder."""
        for path in sorted(self.out.glob("wheels/*/*.whl")):
            if path.stat().st_size < 30_000_000 and self.chance.random() < 1 / 3:
                for there in (self.cache / "wheels").glob(f"*/*/{path.name}"):
                    there.unlink()
        shutil.rmtree(self.out)


def faults_of_killed(how: How, ended: int, said: str) -> list[str]:
    """Say what is wrong with how a command ended that could still do something about it, and with what it said."""
    found = ["a traceback"] if "Traceback (most recent call last)" in said else []
    if how in {How.INTERRUPT, How.TERMINATE} and ended != ExitCode.INTERRUPTED:
        found.append(f"exit {ended} on {how}, not {ExitCode.INTERRUPTED:d}")
    if ended == ExitCode.DEFECT:
        found.append(f"exit {ended} on {how}, as if Cannery were to blame")
    return found


def last_word(lines: Sequence[str]) -> str:
    """The last line that tells of a phase, for a cell of the table. Findings are printed early, and tell of none."""
    found = [
        line.strip() for line in lines if line.strip() and not line.startswith(("note [", "warning [", "    fix:"))
    ]
    return found[-1][:70].replace("|", "/") if found else "(nothing yet)"


def chosen(wanted: Sequence[str]) -> list[tuple[str, tuple[How, ...]]]:
    """The part of the plan whose names have one of these words in them; all of it without words.

    Raises `ValueError` for a word that is in no name: a run without a kill would pass for one without a fault.
    """
    for word in wanted:
        if not any(word in name for name, _ in PLAN):
            raise ValueError(f"no command of the plan has {word!r} in its name: {'; '.join(name for name, _ in PLAN)}")
    return [(name, hows) for name, hows in PLAN if not wanted or any(word in name for word in wanted)]


def is_temporary(name: str) -> bool:
    """Whether a file or folder is one that a run makes for its own time."""
    kept = (".locks", ".hashes", ".lock", ".dockerignore")
    return (
        name.endswith((".part", ".cannery"))
        or name.startswith(("get-", "resolve-"))
        or (name.startswith(".") and name not in kept and not name.endswith(".lock"))
    )


def picture(folder: Path) -> dict[str, int]:
    """Every file of a rendered folder but the log, with its size."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "log")
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def kill_tree(top: int) -> None:
    """Kill a process and all that descend from it, whatever their session."""
    with suppress(ProcessLookupError):
        os.kill(top, signal.SIGSTOP)  # so that it starts no others meanwhile
        for pid in (*descendants(top), top):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(top: int) -> list[int]:
    """The children of a process, theirs, and so on. A daemon that was launched is none: its parent has ended."""
    parents: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    found, new = [], [top]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return found


def marked() -> list[str]:
    """The processes that a killed run of this one has started, and that are alive."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(f"{process.name} {(process / 'cmdline').read_bytes()[:80].decode(errors='replace')}")
    return found


def build_scenes(bench: Bench) -> tuple[Scene, ...]:
    """Builds in which one phase after the other has something to do."""

    def gone() -> None:
        bench.forget(*bench.references)

    def without_base() -> None:
        gone()
        bench.forget_base()

    def cold() -> None:
        without_base()
        bench.cannery.docker("builder", "prune", "--all", "--force")
        for path in (bench.cache / "verified").glob("*"):
            path.unlink()

    def without_rootfs() -> None:
        without_base()
        bench.forget_rootfs()

    image = bench.image
    return (
        Scene("image, all there", image, lambda: None),
        Scene("image, wheels to fetch", image, bench.forget_wheels, 8),
        Scene("image, base to load", image, without_base, 6),
        Scene("image, from nothing", image, cold, 80),
        Scene("image --no-cache", (*image, "--no-cache"), lambda: None, 10),
        Scene("image --verify-again", (*image, "--verify-again"), lambda: None, 12),
        Scene(MADE, image, without_rootfs, 50),
    )


def ship_scenes(bench: Bench, registry: Registry) -> tuple[Scene, ...]:
    """push, save, bundle and load of the image."""
    saved, bundle = bench.folder / "image.tar", bench.folder / "bundle.tar"
    own = (bench.profile, *bench.options)

    def empty() -> None:
        shutil.rmtree(registry.folder / "data", ignore_errors=True)

    def gone() -> None:
        if not saved.exists():
            code, *_ = bench.run(scenes["save"].words)
            assert code == 0, (bench.folder / "run.err").read_text()
        bench.forget(*bench.references)

    def unpushed() -> tuple[str, ...]:
        blobs = (registry.folder / "data/docker/registry/v2/blobs/sha256").glob("*/*/data")
        return tuple(
            f"a blob is not whole: {blob.parent.name}" for blob in blobs if sha256_file(blob) != blob.parent.name
        )

    def unlike(path: Path) -> Callable[[], tuple[str, ...]]:
        def found() -> tuple[str, ...]:
            told = json.loads(path.with_name(f"{path.name}.json").read_text())["sha256"]
            left = [other.name for other in path.parent.glob(f"{path.name}?*") if other.suffix != ".json"]
            return (*(["its side file tells another sha256"] if told != sha256_file(path) else []), *left)

        return found

    def unloaded() -> tuple[str, ...]:
        ids = [
            bench.cannery.docker("image", "inspect", "-f", "{{.Id}}", name).stdout.strip() for name in bench.references
        ]
        return tuple(f"another image: {found}" for found in ids if found != bench.table["id"])

    place = f"{registry.host}/team"
    found = (
        Scene("push", ("push", *own, "--registry", place, "--json"), empty, 60, unpushed),
        Scene("save", ("save", *own, "--output", str(saved), "--json"), lambda: None, 15, unlike(saved)),
        Scene("bundle", ("bundle", *own, "--output", str(bundle), "--json"), lambda: None, 40, unlike(bundle)),
        Scene("load", ("load", str(saved), "--json"), gone, 20, unloaded),
    )
    scenes = {scene.name: scene for scene in found}
    return found


# How often which scene is killed in a round, and by what.
MADE = "image, base to make"
PLAN: tuple[tuple[str, tuple[How, ...]], ...] = (
    ("image, all there", (How.LEADER, How.TREE, How.INTERRUPT)),
    ("image, wheels to fetch", (How.TREE, How.LEADER, How.TERMINATE)),
    ("image, base to load", (How.TREE, How.LEADER)),
    ("image, from nothing", (How.TREE, How.ENGINE, How.INTERRUPT)),
    ("image --verify-again", (How.TREE, How.LEADER, How.TERMINATE)),
    (MADE, (How.TREE,)),
    ("save", (How.TREE, How.LEADER)),
    ("bundle", (How.LEADER, How.TREE)),
    ("load", (How.TREE, How.LEADER)),
    ("push", (How.LEADER, How.TREE, How.ENGINE)),
)


def main() -> int:
    """Kill, run again, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1, help="how often the plan is gone through")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument(
        "--only", action="append", default=[], help="a part of a command's name, as in the table; may be repeated"
    )
    parser.add_argument("--profile", default=PROFILE)
    arguments = parser.parse_args()
    try:
        plan = chosen(arguments.only)
    except ValueError as error:
        parser.error(str(error))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the registry is ended then too
    context = read_context(ROOT)
    if "CANNERY_CACHE" not in os.environ:
        parser.error("set CANNERY_CACHE to a folder of its own: its engine's build cache is removed")
    layout = Layout.of(context.cache)
    docker_engine.start(layout, os.environ)
    os.environ |= {"DOCKER_HOST": layout.host, "PATH": f"{layout.bin}:{os.environ['PATH']}"}
    engine = find_engine(os.environ)
    chance = random.Random(arguments.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-", dir=context.cache.parent)))
        registry = stack.enter_context(Registry(folder / "registry", context.cache))
        os.environ["DOCKER_CONFIG"] = str(login(folder / "docker", [registry.host]))
        cannery = Cannery(engine, dict(os.environ))
        bench = Bench(cannery, context.cache, arguments.profile, folder, chance, ("--base", "standin"))
        if MADE in dict(plan):  # a mirror that has newer packages since gives another base
            bench.forget_base()
            bench.forget_rootfs()
        print("building without a kill first, for what is right", file=sys.stderr, flush=True)
        bench.undisturbed()
        scenes = {scene.name: scene for scene in (*build_scenes(bench), *ship_scenes(bench, registry))}
        rows = []
        print(HEAD, flush=True)
        for name, hows in plan * arguments.rounds:
            for how in hows:
                rows.append(bench.turn(scenes[name], how))
                print(rows[-1], flush=True)
    failed = sum(bool(row.faults) for row in rows)
    print(f"{len(rows)} kills with seed {arguments.seed}, {failed} with faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
