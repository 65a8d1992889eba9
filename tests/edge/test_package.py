"""The program as a package: built, installed without a checkout, and run in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ("images", "templates")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this checkout, and the wheel made from that sdist."""
    folder = tmp_path_factory.mktemp("package")
    for name in files(
        *DATA, "cannery", "pyproject.toml", "README.md", "LICENSE", "requirements.txt", "tests/conftest.py"
    ):
        (folder / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "checkout" / name)
    run(find_uv_bin(), "build", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder,
        cwd=folder / "checkout")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def program(built: Path) -> Path:
    """`cannery` of the wheel, in an environment that takes the dependencies from the one of the tests."""
    wheel, venv = next(built.glob("*.whl")), built / "venv"
    run(find_uv_bin(), "venv", "--quiet", "--no-config", "--python", sys.executable, venv)
    run(find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--offline", "--python", venv / "bin/python", wheel)
    site = next((venv / "lib").glob("python*/site-packages"))
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(dependencies))
    return venv / "bin/cannery"


def run(*words: str | Path, cwd: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    if cwd:
        env["CANNERY_CACHE"] = str(cwd / "cache")
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def only_the_catalog_is_kept(folder: Path) -> bool:
    """Whether a command has written nothing into its working folder, whose `cache` has the catalog as it was read."""
    return {path.relative_to(folder).parts[:2] for path in folder.rglob("*")} <= {("cache",), ("cache", "catalog")}


def files(*places: str) -> set[str]:
    """Return the files of the checkout below `places`, without what git ignores."""
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places)
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}


def test_sdist_and_wheel_hold_all_data_and_no_tests(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert files(*DATA) <= names
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        inside = set(wheel.namelist())
    assert {f"cannery/_data/{name}" for name in files(*DATA)} <= inside
    assert not [name for name in names | inside if name.startswith("tests/") or "__pycache__" in name]


def test_list_and_check_work_in_an_empty_folder(program: Path, tmp_path: Path) -> None:
    assert "quickstart" in run(program, "list", cwd=tmp_path).stdout
    done = run(program, "check", "quickstart", "--arch", "amd64", cwd=tmp_path)
    assert "lock: images/locks/quickstart/py3.11-amd64.txt of cannery" in done.stderr
    assert only_the_catalog_is_kept(tmp_path)


def test_a_lock_of_the_working_folder_is_used_first(program: Path, tmp_path: Path) -> None:
    lock = tmp_path / "cannery-locks/quickstart/py3.11-amd64.txt"
    lock.parent.mkdir(parents=True)
    shutil.copy(ROOT / "images/locks/quickstart/py3.11-amd64.txt", lock)
    done = run(program, "check", "quickstart", "--arch", "amd64", cwd=tmp_path)
    assert "lock: cannery-locks/quickstart/py3.11-amd64.txt\n" in done.stderr
    lock.write_text(lock.read_text().replace('"inputs": "', '"inputs": "0', 1))
    stale = run(program, "check", "quickstart", "--arch", "amd64", cwd=tmp_path, code=3)
    assert "cannery-locks/quickstart/py3.11-amd64.txt" in stale.stdout
    assert "cannery lock quickstart" in stale.stdout


def test_what_edits_the_catalog_is_refused_without_a_checkout(program: Path, tmp_path: Path) -> None:
    run(program, "patches", "new", "verl", "--tree", tmp_path, cwd=tmp_path, code=2)
    assert only_the_catalog_is_kept(tmp_path)


def test_the_module_in_the_checkout_uses_the_checkout(tmp_path: Path) -> None:
    code = "from cannery import __main__, cli; cli.main = lambda *a, **k: print(a[1], k) or 0; __main__.console()"
    done = subprocess.run((sys.executable, "-c", code, "list"), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{ROOT} {{'program': 'cannery'}}\n"
