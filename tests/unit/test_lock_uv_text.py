"""What uv is given and what its answers are read as."""

from __future__ import annotations

import tomllib

import pytest

from cannery.lock.request import KnownRelease, LockRequest
from cannery.lock.uv import UvIndex, exact_pin, explain, parse_pylock, parse_via, project_text, settings_text
from cannery.vocab import Arch

REQUEST = LockRequest(
    "q",
    "3.11",
    Arch.AMD64,
    ("Torch==2.13.0+cpu", 'ray[default]>=2; python_version >= "3.10"'),
    ("numpy<3",),
    ("urllib3<3",),
    ("wandb",),
    "2026-11-20",
    (("torch", "pytorch-cpu"),),
    (KnownRelease("torch", "2.13.0", ("filelock",))),
)
BOUND = {"torch": UvIndex("pytorch-cpu-torch", "https://t.example/cpu", explicit=True, dated=False)}


def test_files_for_uv() -> None:
    project = tomllib.loads(project_text(REQUEST, BOUND, ["triton"]))
    assert project["project"]["dependencies"] == [*REQUEST.requirements, "triton"]
    assert project["tool"]["uv"]["sources"] == {"torch": {"index": "pytorch-cpu-torch"}}
    shared = [UvIndex("default", "https://a.example/simple"), UvIndex("extra-1", "file:///d", flat=True, dated=False)]
    settings = tomllib.loads(settings_text(REQUEST, BOUND, shared))
    assert settings["exclude-newer"] == "2026-11-20T23:59:59Z"
    assert [index["name"] for index in settings["index"]] == ["pytorch-cpu-torch", "default", "extra-1"]
    assert settings["index"][0]["explicit"] is True
    # The preferred index stands first and is not uv's default, which uv asks last.
    assert [index.get("default", False) for index in settings["index"]] == [False, False, True]
    # Facts about a release take the place of its real metadata only where its index is not reached (edge.bound).
    assert "dependency-metadata" not in settings
    assert settings["override-dependencies"] == ["urllib3<3"]
    assert settings["exclude-dependencies"] == ["wandb"]


def test_pins() -> None:
    assert exact_pin(REQUEST, "torch") == "2.13.0+cpu"
    assert exact_pin(REQUEST, "ray") is None


def test_pylock() -> None:
    text = """
lock-version = "1.0"
[[packages]]
name = "torch"
version = "2.13.0+cpu"
wheels = [{ url = "file:///w/torch-2.13.0%2Bcpu-py3-none-any.whl", hashes = { sha256 = "aa" } }]
[[packages]]
name = "antlr4"
version = "4.9.3"
sdist = { url = "https://x.example/antlr4-4.9.3.tar.gz", size = 7, hashes = { sha256 = "bb" } }
"""
    antlr, torch = parse_pylock(text)
    assert (torch.wheels[0].file, torch.wheels[0].size) == ("torch-2.13.0+cpu-py3-none-any.whl", 0)
    assert antlr.sdist is not None
    assert (antlr.sdist.file, antlr.sdist.size, antlr.sdist.sha256) == ("antlr4-4.9.3.tar.gz", 7, "bb")
    with pytest.raises(ValueError, match="git"):
        parse_pylock('[[packages]]\nname = "git-thing"\nversion = "1"\n')


def test_via() -> None:
    text = """
absl-py==2.5.1            # via cannery-lock (pyproject.toml), tensorboard
numpy==2.4.6              # via -c (workspace), cannery-lock (pyproject.toml), ray[default]
pip==26.3
"""
    assert parse_via(text) == {
        "absl-py": ("2.5.1", ("<profile>", "tensorboard")),
        "numpy": ("2.4.6", ("<profile>", "ray[default]")),
        "pip": ("26.3", ()),
    }


def test_explanation_is_short_and_in_our_words() -> None:
    stderr = (
        "warning: `x` is missing an upload date\nerror: No solution found when resolving dependencies\n"
        "  cause: Because a==1 depends on b>=2 and cannery-lock depends on b<2, we can conclude that your "
        "requirements are unsatisfiable.\n\n"
        "hint: The `--python-version` value (>=3.11) includes Python versions that are not supported.\n"
        "hint: `b` was found on https://x.example, but not at the requested version (b>=2).\n"
        "hint: `b` was filtered by `exclude-newer`. Consider using `exclude-newer-package` to override.\n"
    )
    text = explain(stderr, "quickstart")
    assert "quickstart depends on b<2: that cannot be met" in text
    assert "`b` was filtered by `exclude-newer`" in text
    assert [word for word in ("exclude-newer-package", "python-version", "requested version") if word in text] == []
    assert len(explain("error: x\n" + "cause: y z\n" * 50, "q").splitlines()) == 20
