"""What a build stage does, run by the base's own Python (3.10 or newer), offline, standard library only.

    stage.py venv    --epoch N                                      an empty /opt/venv, and uv at /opt/uv
    stage.py install --epoch N --platform P --wheels DIR GROUP      a group's wheels into /out/opt/venv
    stage.py built   --epoch N --platform P --wheels DIR GROUP      the same, from source distributions
    stage.py links   --epoch N PATH=TARGET...                       symbolic links below /out
    stage.py files   --epoch N ROOT                                 copies ROOT's files to /out

Each leaves its layer below /out with owner 0:0 and mtime N on every file and folder, so that the layer's digest is a
function of its inputs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

OUT = Path("/out")
VENV = Path("/opt/venv")
UV = Path("/opt/uv")
TOOLS = Path("/run/cannery/wheels/_tools")
BUILD_VENV = Path("/tmp/build")
BUILT_WHEELS = Path("/tmp/wheels")
MADE_GROUP = Path("/tmp/group.txt")


def main() -> None:
    """Run one stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("venv", "install", "built", "links", "files"))
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--platform")
    parser.add_argument("--wheels", type=Path)
    arguments = parser.parse_intermixed_args()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(arguments.epoch)
    if arguments.what != "venv":
        shutil.rmtree(OUT, ignore_errors=True)
    if arguments.what == "venv":
        make_venv()
    elif arguments.what == "install":
        install(Path(arguments.inputs[0]), arguments.wheels, arguments.platform)
    elif arguments.what == "built":
        install_built(Path(arguments.inputs[0]), arguments.wheels, arguments.platform)
    elif arguments.what == "links":
        make_links(arguments.inputs)
    else:
        shutil.copytree(arguments.inputs[0], OUT, symlinks=True)
        for path in OUT.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    normalise(OUT, arguments.epoch)


def make_venv() -> None:
    """Make /opt/venv with this Python, keep a copy for the layer, and unpack uv from its wheel."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(VENV)
    (OUT / "opt").mkdir(parents=True)
    shutil.copytree(VENV, OUT / "opt/venv", symlinks=True)
    (wheel,) = TOOLS.glob("uv-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith("/scripts/uv"))
        UV.write_bytes(archive.read(member))
    UV.chmod(0o755)


def install(group: Path, wheels: Path, platform: str, *, hashes: bool = True) -> None:
    """Install a group's wheels for `platform` below /out, compiled to hash-based .pyc, and drop uv's own traces."""
    OUT.mkdir()
    run_uv(
        "pip", "install",
        "--prefix", f"{OUT}{VENV}",
        "--python", f"{VENV}/bin/python",
        "--python-platform", platform,
        "--find-links", str(wheels),
        "--no-deps", "--compile-bytecode",
        *(("--require-hashes",) if hashes else ()),
        "-r", str(group),
    )  # fmt: skip
    drop_traces(OUT)


def install_built(group: Path, sdists: Path, platform: str) -> None:
    """Make wheels of a group's source distributions with the locked build tools, then install them."""
    wanted = read_group(group)
    files = {sha256(path): path for path in sorted(sdists.iterdir())}
    make_build_venv()
    for requirement, digest in wanted:
        if digest not in files:
            sys.exit(f"{requirement}: no source distribution with the locked hash sha256:{digest}")
        build_wheel(files[digest], f"{BUILD_VENV}/bin/python")
    install_made([requirement for requirement, _ in wanted], platform, BUILT_WHEELS)


def make_build_venv() -> None:
    """Make the virtual environment of the builds: the locked build tools and nothing else."""
    run_uv("venv", "--python", sys.executable, str(BUILD_VENV))
    tools = [str(p) for p in sorted(TOOLS.glob("*.whl")) if not p.name.startswith("uv-")]
    run_uv("pip", "install", "--python", f"{BUILD_VENV}/bin/python", "--no-deps", *tools)


def build_wheel(source: Path, python: str, **variables: str) -> None:
    """Make a wheel of a source distribution or tree, below BUILT_WHEELS, in the environment of `python`."""
    run_uv(
        "build", "--wheel", "--no-build-isolation", "--python", python,
        "--out-dir", str(BUILT_WHEELS), str(source), **variables,
    )  # fmt: skip


def install_made(requirements: list[str], platform: str, wheels: Path) -> None:
    """Install what was made below `wheels`, once it is known to fit the target: uv's own words would name no cause."""
    check_made(wheels, platform)
    MADE_GROUP.write_text("".join(f"{requirement}\n" for requirement in requirements))
    install(MADE_GROUP, wheels, platform, hashes=False)


def check_made(wheels: Path, platform: str) -> None:
    """End the stage when a wheel below `wheels` was compiled for another machine than the target's."""
    machine = platform.partition("-")[0]
    wrong = [wheel.name for wheel in sorted(wheels.glob("*.whl")) if not fits(wheel.name, machine)]
    if wrong:
        here = os.uname().machine
        sys.exit(
            f"compiled on {here}, and so of no use on the target, which is {machine}: {', '.join(wrong)}\n"
            f"Build on a machine that is {machine}, or exclude the package in the profile where the stack can do "
            "without it; a component that compiles is of `kind: native`"
        )


def fits(wheel: str, machine: str) -> bool:
    """Whether the platform tags of a wheel's name hold `machine`, or `any`."""
    platforms = wheel.removesuffix(".whl").rpartition("-")[2].split(".")
    return any(name == "any" or name.endswith(f"_{machine}") for name in platforms)


def read_group(group: Path) -> list[tuple[str, str]]:
    """Return (requirement, sha256) of each entry of a group file."""
    text = group.read_text().replace("\\\n", " ")
    entries = (line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return [(requirement, digest.removeprefix("--hash=sha256:")) for requirement, digest in entries]


def run_uv(*arguments: str, **variables: str) -> None:
    """Run uv without network, cache or configuration; end the stage with its status when it fails."""
    env = {
        **os.environ,
        **variables,
        "HOME": "/tmp",
        "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_NO_CACHE": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    done = subprocess.run((str(UV), *arguments), env=env, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def drop_traces(root: Path) -> None:
    """Remove what uv leaves beside the wheels: the cache info holds the wheel file's ctime, so digests would differ."""
    (root / VENV.relative_to("/") / ".lock").unlink(missing_ok=True)
    for trace in root.rglob("*.dist-info/uv_cache.json"):
        trace.unlink()
        record = trace.parent / "RECORD"
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if "/uv_cache.json," not in line))


def make_links(pairs: list[str]) -> None:
    """Make symbolic links, given as PATH=TARGET, below /out."""
    for pair in pairs:
        path, target = pair.split("=", 1)
        link = OUT / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def normalise(root: Path, epoch: int) -> None:
    """Give everything below `root`, and `root`, owner 0:0 and mtime `epoch`."""
    for folder, folders, files in os.walk(root, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(folder, name)  # noqa: PTH118 - 60,000 files: Path objects cost seconds
            os.chown(path, 0, 0, follow_symlinks=False)
            os.utime(path, (epoch, epoch), follow_symlinks=False)
    os.utime(root, (epoch, epoch))


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


if __name__ == "__main__":
    main()
