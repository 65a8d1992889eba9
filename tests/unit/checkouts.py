"""A copy of the checkout's data with locks of its own, for tests of whole commands."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from factories import package
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cannery.catalog.io.read import load_catalog
from cannery.lock.lock import Lock, LockedPackage, format_lock
from cannery.lock.request import LockRequest, lock_request, tools_request
from cannery.recipe.recipe import Options, with_arch
from cannery.recipe.select import select
from cannery.vocab import Arch

ROOT = Path(__file__).resolve().parent.parent.parent
# A frozen images/ without locks: no change of a profile, a pin or a component there reaches the tests that read it.
FROZEN = ROOT / "tests/data/catalog"


def copy_checkout(folder: Path) -> Path:
    """Copy the frozen images/ and templates/ to `folder`, and write current locks of `quickstart`."""
    shutil.copytree(FROZEN, folder / "images")
    shutil.copytree(ROOT / "templates", folder / "templates", ignore=shutil.ignore_patterns("__pycache__"))
    catalog = load_catalog(folder / "images")
    recipe = select(catalog, "quickstart", Options(), Arch.AMD64)
    for arch in Arch:
        write_lock(folder, lock_request(with_arch(recipe, arch)), quickstart_packages(arch))
        write_lock(folder, tools_request(catalog, recipe.target.python, arch), tool_packages(arch))
    return folder


def write_lock(root: Path, request: LockRequest, packages: tuple[LockedPackage, ...]) -> Path:
    """Write a committed lock that answers `request`."""
    made = Lock(request.profile, request.python, request.arch, request.digest, request.exclude_newer, "uv 0", packages)
    path = root / "images/locks" / request.profile / f"py{request.python}-{request.arch}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_lock(made), encoding="utf-8")
    return path


def quickstart_packages(arch: Arch) -> tuple[LockedPackage, ...]:
    """A lock's content for `quickstart`: its components, what CANN imports, and one package more."""
    tag = f"cp311-cp311-manylinux_2_28_{arch.machine}.whl"
    mine = (
        package("cachetools", "8.0.2"),
        package("click", "8.1.0", via=("ray",)),
        package("fastapi", "0.165.0"),
        package("numpy", "2.3.0", file=f"numpy-2.3.0-{tag}", size=16_000_000),
        package("pip", "25.0"),
        package("ray", "2.50.0", file=f"ray-2.50.0-{tag}", size=70_000_000),
        package("tensordict", "0.10.0"),
        package("torch", "2.13.0+cpu", file=f"torch-2.13.0+cpu-{tag}", size=180_000_000, index="pytorch-cpu"),
        package("torch-npu", "2.13.0", file=f"torch_npu-2.13.0-{tag}", size=24_000_000),
        package("transferqueue", "0.1.11"),
        package("transformers", "4.60.0", size=12_000_000),
        package("uvicorn", "0.54.0"),
        package("verl", "0.9.1"),
    )
    base = load_catalog(FROZEN).bases["8.5.0"]
    cann = {canonicalize_name(Requirement(text).name) for text in base.python_packages}
    more = (package(name, size=1000) for name in cann - {p.name for p in mine})
    return tuple(sorted((*mine, *more), key=lambda p: p.name))


def tool_packages(arch: Arch) -> tuple[LockedPackage, ...]:
    """The build tools."""
    uv = package("uv", "0.13.9", file=f"uv-0.13.9-py3-none-manylinux_2_17_{arch.machine}.whl", size=20_000_000)
    return (
        package("packaging", "26.0"),
        package("pybind11", "3.0.0"),
        package("setuptools", "80.0.0"),
        package("setuptools-scm", "10.0.0"),
        uv,
        package("wheel", "0.45.0"),
    )


def incomplete(packages: tuple[LockedPackage, ...], name: str) -> tuple[LockedPackage, ...]:
    """The same packages, one of them known by version only."""
    return tuple(replace(p, file="", sha256="", size=0) if p.name == name else p for p in packages)
