"""tools/setup_venv.py with pip and uv that are noted and not run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent
UV = "uv==0.13.9 \\\n    --hash=sha256:00\n    # via cannery (pyproject.toml)\n"
LOCKED = f"# made by\nrich==15.0 \\\n    --hash=sha256:11\n    # via cannery\n{UV}yarl==1.0 \\\n    --hash=sha256:22\n"


class Setup:
    """The script in a folder of its own; `calls` are pip's and uv's arguments; a call with the word `fails` fails."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = importlib.util.spec_from_file_location("setup_venv", ROOT / "tools/setup_venv.py")
        assert spec is not None
        assert spec.loader is not None
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.folder, self.monkeypatch = folder, monkeypatch
        self.calls: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.fails = ""
        monkeypatch.setattr(self.module, "ROOT", folder)
        monkeypatch.setattr(self.module, "VENV", folder / ".venv")
        monkeypatch.setattr(self.module.subprocess, "run", self.run)
        (folder / "requirements.txt").write_text(LOCKED)
        (folder / "requirements-dev.txt").write_text("pytest==9 \\\n    --hash=sha256:33\n")

    def run(self, command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[bytes]:
        words = command[3:] if command[:3] == (sys.executable, "-m", "pip") else command
        if words != ("--version",):
            self.calls.append(words)
        if "-r" in words:
            self.texts.append(Path(words[words.index("-r") + 1]).read_text())
        if "venv" in words:
            (self.folder / ".venv/bin").mkdir(parents=True)
            (self.folder / ".venv/bin/python").touch()
        status = 1 if self.fails and self.fails in words else 0
        return subprocess.CompletedProcess(command, status, b"", b"")

    def __call__(self, *words: str) -> int:
        self.monkeypatch.setattr(sys, "argv", ["setup_venv.py", *words])
        self.calls.clear()
        self.texts.clear()
        try:
            return int(self.module.main())
        except SystemExit as done:
            return int(done.code or 0)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    return Setup(tmp_path, monkeypatch)


def test_a_bare_checkout_gets_uv_at_its_locked_version_then_an_environment_then_the_packages(setup: Setup) -> None:
    assert setup() == 0
    uv, venv, packages = setup.calls
    assert uv[:4] == ("install", "--no-deps", "--require-hashes", "--target")
    assert setup.texts == [UV.rstrip() + "\n", LOCKED]
    assert venv[1] == "venv"
    assert venv[-1] == str(setup.folder / ".venv")
    assert packages[:3] == ("--python", str(setup.folder / ".venv/bin/python"), "install")
    assert {"--no-deps", "--require-hashes"} <= set(packages)


def test_again_does_nothing(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    setup()
    capsys.readouterr()
    assert setup() == 0
    assert setup.calls == []
    assert capsys.readouterr().err == ""


def test_dev_adds_the_second_file_only(setup: Setup) -> None:
    setup()
    assert setup("--dev") == 0
    assert setup.texts == ["pytest==9 \\\n    --hash=sha256:33\n"]
    assert setup("--dev") == setup() == 0
    assert setup.calls == []


def test_a_changed_file_is_installed_into_the_same_environment(setup: Setup) -> None:
    setup()
    (setup.folder / "requirements.txt").write_text(LOCKED.replace("15.0", "15.1"))
    assert setup() == 0
    (packages,) = setup.calls
    assert "install" in packages


def test_another_python_takes_it_as_it_is(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup()
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    assert setup() == 0
    assert setup.calls == []


def test_an_unreachable_index_is_exit_7_and_the_next_run_completes(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.fails = "--python"
    assert setup() == 7
    assert "pip could not install" in capsys.readouterr().err
    setup.fails = ""
    assert setup() == 0
    assert len(setup.calls) == 1, "the environment is there, its packages are not"


def test_without_uv_nothing_is_left_half_made(setup: Setup) -> None:
    setup.fails = "--target"
    assert setup() == 7
    setup.fails = ""
    assert setup() == 0
    assert len(setup.calls) == 3


def test_no_pip_is_exit_4_with_what_to_install(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    setup.fails = "--version"
    assert setup() == 4
    text = capsys.readouterr().err
    assert "has no pip" in text
    assert "python3-pip" in text


def test_an_old_python_is_exit_4(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    assert setup() == 4
    assert "Python 3.11 or newer is needed" in capsys.readouterr().err


def test_the_real_locked_set_has_uv_where_it_is_looked_for() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert text.count("\nuv==") == 1
    assert "--hash=sha256:" in text


def test_it_runs_with_what_a_bare_machine_has() -> None:
    code = (
        "import ast, sys; tree = ast.parse(open('tools/setup_venv.py').read());"
        "names = {n.name.split('.')[0] for t in ast.walk(tree) if isinstance(t, ast.Import) for n in t.names};"
        "names |= {t.module.split('.')[0] for t in ast.walk(tree) if isinstance(t, ast.ImportFrom)};"
        "print(sorted(names - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
