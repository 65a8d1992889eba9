"""The parts of benchmarks/images.py that a short run does not reach: an engine's builds, and the ratios."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from cannery.engine.io.find import Engine

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"
DOCKERFILE = """\
FROM base AS system
RUN apt
FROM system AS foundation
COPY --link --from=system /out/ /
FROM base AS group-tool
RUN install
FROM foundation AS image
COPY --link --from=group-tool /out/ /
"""
WHEEL = "tool-1.0-py3-none-any.whl"


class Builds(Protocol):
    def bake(self, file: str = "docker-bake.json", target: str = "image") -> float: ...

    def build(self, *options: str) -> float: ...

    def change(self, package: str) -> None: ...


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look there
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    """The builds of an engine whose client only writes its words down."""
    rendered, usual = tmp_path / "rendered", tmp_path / "usual"
    for folder in (rendered / "wheels/tool", rendered / "groups", usual):
        folder.mkdir(parents=True)
    (rendered / "Dockerfile").write_text(DOCKERFILE)
    (rendered / "docker-bake.json").write_text(json.dumps({"target": {"image": {"context": "."}}}))
    with zipfile.ZipFile(tmp_path / "cached.whl", "w") as archive:
        archive.writestr("tool.py", "A = 1\n")
    for path in (rendered / "wheels/tool" / WHEEL, usual / WHEEL):
        os.link(tmp_path / "cached.whl", path)
    digest = hashlib.sha256((tmp_path / "cached.whl").read_bytes()).hexdigest()
    (rendered / "groups/tool.txt").write_text(f"other==1 --hash=sha256:{'0' * 64}\ntool==1.0 --hash=sha256:{digest}\n")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "${{PWD##*/}} $*" >>{tmp_path}/words\n')
    docker.chmod(0o755)
    engine = Engine("unix:///nowhere", docker, "28.0", "1.50", "amd64", None)
    return module("peers").Builds(engine, dict(os.environ), rendered, usual)


def test_a_bake_without_cache_keeps_the_foundation(builds: Builds, tmp_path: Path) -> None:
    value = json.loads((tmp_path / "rendered/empty.json").read_text())
    assert value["target"]["image"] == {"context": ".", "no-cache-filter": ["group-tool", "image"]}
    builds.bake("empty.json")
    builds.bake(target="foundation")
    builds.build("--no-cache")
    name = "tags=cannery-benchmark"
    assert (tmp_path / "words").read_text().replace("buildx --builder default ", "").splitlines() == [
        f"rendered bake -f empty.json --set image.{name}:1 image",
        f"rendered bake -f docker-bake.json --set foundation.{name}:1 foundation",
        "usual build --no-cache --tag cannery-benchmark:2 .",
    ]


def test_a_changed_wheel_is_another_file_in_both_folders_and_not_in_the_cache(builds: Builds, tmp_path: Path) -> None:
    before = (tmp_path / "cached.whl").read_bytes()
    builds.change("tool")
    ours, usual = tmp_path / "rendered/wheels/tool" / WHEEL, tmp_path / "usual" / WHEEL
    assert ours.read_bytes() == usual.read_bytes() != before
    assert (tmp_path / "cached.whl").read_bytes() == before
    other, tool = (tmp_path / "rendered/groups/tool.txt").read_text().splitlines()
    assert other == f"other==1 --hash=sha256:{'0' * 64}"
    assert tool == f"tool==1.0 --hash=sha256:{hashlib.sha256(ours.read_bytes()).hexdigest()}"
    assert zipfile.ZipFile(ours).read("tool.py") == b"A = 1\n"


def test_ratios_are_of_the_same_case() -> None:
    rows = module("rows")
    found = [
        rows.Row("cold", "Cannery", 2.0, 4.0, 3_000_000, 1_500_000),
        rows.Row("cold", "pip", 5.0, 10.0),
        rows.Row("cold", "docker", 3.0),
        rows.Row("cold", "bake", note="no engine"),
        rows.Row("floor", "unzip", 1.0, 1.0),
    ]
    lines = rows.table(found).splitlines()[1:]
    assert lines[0].split() == ["cold", "Cannery", "2.00", "4.00", "3.00", "1.50"]
    assert [line.split()[6:] for line in lines[1:]] == [
        ["wall", "2.5,", "CPU", "2.5"],
        ["wall", "1.5"],
        ["no", "engine"],
        [],
    ]
    # 480 is the longest bar, and a row without CPU time has none.
    assert [
        line.partition('width="')[2].partition('"')[0] for line in rows.chart(found).splitlines() if "<rect" in line
    ] == [
        "192.0",
        "480.0",
        "48.0",
    ]


def test_the_matrix_is_planned_and_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rendering, file = module("rendering"), tmp_path / "digests.json"
    monkeypatch.setattr(sys, "argv", ["rendering.py", "--json", str(file)])
    every = [
        cell for cell in rendering.matrix(rendering.read_context(FOLDER.parent).catalog()) if cell[0] == "quickstart"
    ]
    assert len(every) == 8, "two architectures, two chips, two bases"
    monkeypatch.setattr(rendering, "matrix", lambda catalog: every)
    rendering.main()
    assert capsys.readouterr().out.startswith("8 images, 0 of them refused: ")
    digests = json.loads(file.read_text())
    assert len(digests) == 8
    # `standin` is the own base of quickstart.
    assert len(set(digests.values())) == 4
