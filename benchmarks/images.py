"""Compare Cannery with the usual ways to install wheels into an image: the same wheels and base, without network.

    .venv/bin/python benchmarks/images.py [--short | --arch ARCH [--profile PROFILE]] [--json FILE] [--svg FILE]

It needs root (boxes are made without an engine), and a network only for wheels that are not in the cache. Each case has
its own folders, so that no run finds files of an earlier one. If a Docker engine is running, its builds are measured
too. docs/explanation/benchmark.md lists what is compared and what is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from peers import DOCKERFILE, INSTALLERS, WHEELS, Builds, command_of, installed  # noqa: E402
from rows import OURS, Row, chart, table  # noqa: E402

from cannery.assemble.image import foundation_reference  # noqa: E402
from cannery.build.io.secrets import host_secrets  # noqa: E402
from cannery.commands.place import engine_place  # noqa: E402
from cannery.context import read_context  # noqa: E402
from cannery.engine.io.find import NoEngineError  # noqa: E402
from cannery.pipeline import planned  # noqa: E402
from cannery.recipe.recipe import Options  # noqa: E402
from cannery.sandbox.io.able import why_not  # noqa: E402
from cannery.store.io.store import Store  # noqa: E402
from cannery.util.io.locks import own_folder  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cannery.context import Context
    from cannery.plan import Plan

PROFILE, SECOND_CHIP = "quickstart", "a3"
EMPTY, CODE, NOTHING = "all caches empty", "byte code cached", "nothing changed"
SMALL, LARGE, SECOND, FLOOR = "one small pin", "one large pin", "second profile", "floor"
PINS = {SMALL: "tqdm==4.67.1", LARGE: "ray==2.58.0"}
BAKE, DOCKER = "docker buildx bake", "docker build"
# build.py with its own folder for rendered files.
RUN = """\
import sys, pathlib, cannery.cli
root, work = map(pathlib.Path, sys.argv[1:3])
sys.exit(cannery.cli.main(sys.argv[3:], root, work=work))
"""


@dataclass(frozen=True)
class Bench:
    """The settings of this run, its folder, the profile with its options, and its plan."""

    context: Context
    folder: Path
    words: tuple[str, ...]
    plan: Plan

    @property
    def cache(self) -> Path:
        """The user's cache."""
        return self.context.cache

    def build_py(self, cache: Path, *arguments: str) -> None:
        """Run build.py with a cache, and with a folder beside it for rendered files."""
        work = self.folder / f"out-{cache.name}"
        work.mkdir(exist_ok=True)
        # Python keeps the byte code of Cannery itself, as it does by default.
        own = {"CANNERY_CACHE": str(cache), "PYTHONPYCACHEPREFIX": str(self.folder / "pycache")}
        env = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": ""}
        command = (sys.executable, "-c", RUN, str(ROOT), str(work), *arguments, "--quiet")
        subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)

    def new_cache(self, images: Iterable[str], *kept: str) -> Path:
        """Return a new cache with the user's wheels and locks, images of the user's store, and other kept files."""
        cache = Path(tempfile.mkdtemp(dir=self.folder))
        for name in ("wheels", "locks", "locked", *kept):
            (self.cache / name).mkdir(exist_ok=True)
            (cache / name).symlink_to(self.cache / name)
        have, store = Store(self.cache / "images"), Store(cache / "images")
        for name in images:
            image = have.needed(name)
            for diff_id in image.layers:
                layer, folder = have.needed_layer(diff_id), have.unpacked(diff_id)
                blob, unpacked = store.blob_path(layer.digest), cache / "images/unpacked" / folder.name
                if not blob.exists():
                    for parent in (blob.parent, unpacked.parent):
                        parent.mkdir(parents=True, exist_ok=True)
                    link(have.blob_path(layer.digest), blob)
                    unpacked.symlink_to(folder)
                store.note(layer)
            store.put(have.blob_path(image.id).read_bytes(), name)
        return cache

    def keep_code(self, cache: Path, source: Path, *, notes: bool) -> None:
        """Link the byte code of the locked wheels, and with `notes` the digests of the locked layers."""
        names = [package.sha256 for package in self.plan.lock.packages]
        names += [layer.digest for layer in self.plan.layers] if notes else []
        for path in [*source.glob("layers/code/*/*.zip"), *source.glob("layers/*.json")]:
            if path.name.partition("-")[0] in names:
                target = cache / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, target)

    def measured(self, case: str, who: str, action: Callable[[], object], store: Path | None = None) -> Row:
        """Run a job in its own process, and measure it with its children and the new blobs of a store."""
        print(f"{case}: {who} …", file=sys.stderr, flush=True)
        before, log = blobs(store), self.folder / "log"
        written, begun = bytes_written(), time.monotonic()
        child = os.fork()
        if child == 0:
            with log.open("wb") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
            try:
                action()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - this process ends here
                traceback.print_exc()
                os._exit(1)
        try:
            _, status, usage = os.wait4(child, 0)
        except KeyboardInterrupt:
            os.waitpid(child, 0)  # it was interrupted too, and still writes to what is removed next
            raise
        wall, cpu = time.monotonic() - begun, usage.ru_utime + usage.ru_stime
        print(f"    {wall:.2f} s, {cpu:.2f} CPU s", file=sys.stderr, flush=True)
        if status:
            sys.exit(f"{case}, {who}: failed\n{log.read_text(errors='replace')[-4000:]}")
        new = sum(size for name, size in blobs(store).items() if name not in before) if store else None
        return Row(case, who, wall, cpu, bytes_written() - written, new)


def blobs(store: Path | None) -> dict[str, int]:
    """Return {digest: size} of the blobs below a cache's image store: its layers, and its images' configurations."""
    if store is None:
        return {}
    images = Store(store / "images")
    layers = [layer for chain in images.chains() for layer in map(images.layer, chain) if layer]
    configs = {image: len(images.config(image) or b"") for image in images.names().values()}
    return configs | {layer.digest: layer.size for layer in layers}


def link(source: Path, target: Path) -> None:
    """Link a file, or all files of a folder."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=os.link)
    else:
        os.link(source, target)


def bytes_written() -> int:
    """Return the bytes that this process and its finished children wrote to disks (proc(5), io)."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["write_bytes"])


def main() -> None:
    """Run the cases, and print, write and draw the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="what takes seconds: a small pin, nothing changed, floors")
    parser.add_argument("--profile", default=PROFILE, help=f"the image to make, on the stand-in base ({PROFILE})")
    parser.add_argument("--arch", help="for another architecture than this host's, the usual way runs under QEMU")
    parser.add_argument("--python", help="a Python that the stand-in has, where the profile's own is another")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the CPU seconds")
    arguments = parser.parse_args()
    context = read_context(ROOT)
    if why := why_not(context.cache):
        sys.exit(f"error: this host cannot make images without an engine: {why}")
    with own_folder(context.cache / "benchmark") as folder:
        options = Options(arch=arguments.arch, base="standin", python=arguments.python)
        plan = planned(context, arguments.profile, options).plan
        target = plan.recipe.target
        words = (arguments.profile, "--base", "standin", "--arch", target.arch, "--python", target.python)
        bench = Bench(context, folder, words, plan)
        print("making what is not measured …", file=sys.stderr, flush=True)
        bench.build_py(context.cache, "image", *words, "--output", "store")
        if target.arch != context.arch:
            rows = foreign_rows(bench)
        else:
            rows = short_rows(bench, context.cache) if arguments.short else all_rows(bench)
    print(table(rows))
    if arguments.json:
        found = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if arguments.svg:
        arguments.svg.write_text(chart(rows))


def short_rows(bench: Bench, code: Path) -> list[Row]:
    """Measure the cases that take seconds; `code` is the cache whose byte code is used."""
    wheels = usual_folder(bench, "locked")
    rows = [pin_row(bench, SMALL, code)]
    cache = warm_cache(bench, code)
    again = partial(bench.build_py, cache, "image", *bench.words, "--output", "store")
    again()  # leaves the stamp of a run that has verified
    rows.append(bench.measured(NOTHING, OURS, again, cache))
    rows.append(bench.measured(FLOOR, "unzip all wheels", partial(unzip, wheels, bench.folder / "unzipped")))
    rows.append(bench.measured(FLOOR, "read and sha256 all wheels", partial(read, wheels)))
    shutil.rmtree(bench.folder / "unzipped")
    return rows


def warm_cache(bench: Bench, code: Path, *more: str) -> Path:
    """Return a new cache in the state after the profile's image was built and verified."""
    names = (bench.plan.base_reference, foundation_reference(bench.plan), bench.plan.reference, *more)
    cache = bench.new_cache(names, "catalog", "pip", "verified")
    bench.keep_code(cache, code, notes=True)
    shutil.copy(code / "boxes.able", cache)
    shutil.copytree(code / "layers/pythons", cache / "layers/pythons")
    return cache


def pin_row(bench: Bench, case: str, code: Path) -> Row:
    """Measure a pin on the locked image. Its lock and its wheels exist, its byte code does not."""
    pin = ("--pin", PINS[case])
    bench.build_py(bench.cache, "render", *bench.words, *pin, "--output", str(bench.folder / case))
    cache = warm_cache(bench, code)
    action = partial(bench.build_py, cache, "image", *bench.words, *pin, "--output", "store", "--no-verify")
    return bench.measured(case, OURS, action, cache)


def all_rows(bench: Bench) -> list[Row]:
    """Measure every case, with Cannery and with its peers."""
    made = (bench.plan.base_reference, foundation_reference(bench.plan))
    whole = ("image", *bench.words, "--output", "store", "--no-verify")
    cold = bench.new_cache(made)
    rows = [bench.measured(EMPTY, OURS, partial(bench.build_py, cold, *whole), cold)]
    cache = bench.new_cache(made)
    bench.keep_code(cache, cold, notes=False)
    rows.append(bench.measured(CODE, OURS, partial(bench.build_py, cache, *whole), cache))
    rows += [pin_row(bench, LARGE, cold), *short_rows(bench, cold)]
    target = bench.plan.recipe.target
    chip = ("--chip", SECOND_CHIP)
    bench.build_py(bench.cache, "image", *bench.words, *chip, "--output", "store")
    options = Options(chip=SECOND_CHIP, base="standin", python=target.python)
    second = planned(bench.context, bench.words[0], options).plan
    cache = warm_cache(bench, cold, second.base_reference, foundation_reference(second))
    action = partial(bench.build_py, cache, *whole, *chip)
    rows.append(bench.measured(SECOND, OURS, action, cache))
    for case in (EMPTY, *PINS):
        wheels = usual_folder(bench, "locked" if case == EMPTY else case)
        rows += [peer_row(bench, case, who, wheels) for who in INSTALLERS]
    rows += engine_rows(bench)
    order = (EMPTY, CODE, SMALL, LARGE, NOTHING, SECOND, FLOOR)
    return sorted(rows, key=lambda row: order.index(row.case))


def foreign_rows(bench: Bench) -> list[Row]:
    """Measure an image for another architecture. After a changed pin, the usual way installs everything again."""
    made = (bench.plan.base_reference, foundation_reference(bench.plan), bench.plan.build_reference)
    whole = ("image", *bench.words, "--output", "store", "--no-verify")
    cold = bench.new_cache(made)
    rows = [bench.measured(EMPTY, OURS, partial(bench.build_py, cold, *whole), cold), pin_row(bench, SMALL, cold)]
    usual = peer_row(bench, EMPTY, "pip install", usual_folder(bench, "locked"))
    return [rows[0], usual, rows[1], replace(usual, case=SMALL)]


def usual_folder(bench: Bench, name: str) -> Path:
    """Return a folder with the wheels of a rendered folder and their requirements, without packages from sources."""
    rendered, usual = bench.folder / name, bench.folder / f"usual {name}"
    if not rendered.exists():
        bench.build_py(bench.cache, "render", *bench.words, "--output", str(rendered))
    if not usual.exists():
        usual.mkdir()
        lines = []
        for group in sorted(rendered.glob("groups/*.txt")):
            if group.stem != "built":
                lines += [line.split(" ")[0] for line in group.read_text().splitlines()]
                for wheel in (rendered / "wheels" / group.stem).iterdir():
                    os.link(wheel, usual / wheel.name)
        (usual / "requirements.txt").write_text("\n".join(lines) + "\n")
    return usual


def peer_row(bench: Bench, case: str, who: str, wheels: Path) -> Row:
    """Measure what RUN would do, without an engine: a box on the base, and its changes as one layer of an image."""
    cache = bench.new_cache((bench.plan.base_reference,))
    row = bench.measured(case, who, partial(installed, bench.plan, cache, who, wheels), cache)
    shutil.rmtree(cache)
    return row


def unzip(wheels: Path, folder: Path) -> None:
    """Unpack wheels into a folder."""
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def read(wheels: Path) -> None:
    """Read and hash wheels."""
    for wheel in wheels.glob("*.whl"):
        with wheel.open("rb") as stream:
            hashlib.file_digest(stream, "sha256")


def engine_rows(bench: Bench) -> list[Row]:
    """Measure builds of the running engine, by wall time only: its processes are not ours."""
    context, cases = bench.context, (EMPTY, *PINS, NOTHING)
    try:
        place = engine_place(context)
    except NoEngineError:
        return [Row(case, who, note="no engine") for case in cases for who in (BAKE, DOCKER)]
    bench.build_py(context.cache, "image", *bench.words, "--output", "docker", "--no-verify")  # base and foundation
    usual, rows = usual_folder(bench, "locked"), []
    text = DOCKERFILE.format(base=bench.plan.base_reference, at=WHEELS, command=command_of(bench.plan, "pip install"))
    (usual / "Dockerfile").write_text(text)
    suite = context.catalog().standin.suite
    with host_secrets(context.cache, context.env, context.pip, suite, {}) as secrets:
        builds = Builds(place.engine, {**place.env, **secrets.env}, bench.folder / "locked", usual)
        try:
            builds.bake(target="foundation")  # BuildKit may have lost what the engine has
            for case in cases:
                if case in PINS:
                    builds.change(PINS[case].partition("=")[0])
                rows.append(Row(case, BAKE, builds.bake(*(["empty.json"] if case == EMPTY else []))))
                rows.append(Row(case, DOCKER, builds.build(*(["--no-cache"] if case == EMPTY else []))))
        finally:
            builds.remove()
    return rows


if __name__ == "__main__":
    main()
