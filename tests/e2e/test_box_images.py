"""An image that was made in boxes, without an engine, has the layers of the one that the engine's BuildKit has made.

The profile has one of each: a user, a folder to start in, a source that becomes a wheel, an editable one, and a native
one that is built on the wheels. All of them are made up: git repositories that the test makes.

A machine without boxes takes the foundation and the compiled sources from a registry, and makes the same image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cannery.assemble.image import foundation_reference
from cannery.commands.place import store_place
from cannery.commands.registry import dock_of
from cannery.context import Context, read_context
from cannery.errors import UnableError
from cannery.making.image import built
from cannery.making.parts import BuildOptions
from cannery.making.sharing import share_parts
from cannery.pipeline import Hashes, Work, planned
from cannery.plan import LayerKind
from cannery.recipe.recipe import Options
from cannery.sandbox.io.able import why_not
from tests.e2e.engine_fixtures import ROOT, Cannery, bare_cache, small_checkout
from tests.e2e.registry import Registry, login
from tests.edge.git_trees import Repo
from tests.images.test_lines import COMPONENTS, profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

NAME = "boxes"
SETUP = "from setuptools import setup\nsetup(name={name!r}, version='1.0', packages=[{name!r}])\n"
# The stand-in's own layers, and above them the one that a package manager has worked on.
SYSTEM = 2


@dataclass(frozen=True)
class Twice:
    """Diff ids of the images of the engine, of the store, and of a store without boxes, lowest first."""

    engine: list[str]
    store: list[str]
    shared: list[str]


def component(kind: str, install: str, name: str, commit: str, **more: object) -> str:
    revision = {"version": "1.0", "source": "its setup.py", "build_requires": ["setuptools"]}
    value = {
        "kind": kind,
        "summary": "made up",
        "hosts": {"github": f"made-up/{name}"},
        "install": install,
        "imports": [{"module": name}],
        "revisions": {commit: revision},
        **more,
    }
    return yaml.safe_dump(value)


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory, cannery: Cannery) -> Iterator[Twice]:
    if why := why_not(read_context(ROOT).cache):
        pytest.skip(f"no boxes here: {why}")
    root, mirror = tmp_path_factory.mktemp("boxes"), tmp_path_factory.mktemp("mirror")
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "plain": ("source", "wheel", {}),
        "edited": ("source", "editable", {"after": ["plain"]}),
        # It finds the wheels of the image, and its own commands are those of the base.
        "compiled": (
            "native",
            "wheel",
            {
                "after": ["torch-npu"],
                "before": [
                    ["{python}", "-c", "import torch_npu.version, pathlib; pathlib.Path('compiled/made.py').touch()"],
                    ["sh", "-c", "id -u >compiled/data.py; sed -i s/^/x=/ compiled/data.py"],
                ],
            },
        ),
    }
    commits = {}
    for name in kinds:
        files = {f"{name}/__init__.py": f"import sys\n\nname = {name!r}\n", "setup.py": SETUP.format(name=name)}
        commits[name] = Repo(mirror / "made-up" / name).commit(files)
    text = profile_text(str(read_context(ROOT).arch), COMPONENTS, user="HwHiAiUser", workdir="/workspace")
    profile = yaml.safe_load(text)
    profile["components"] += [{"name": name, "commit": commit} for name, commit in commits.items()]

    def add_components(images: Path) -> None:
        for name, (kind, install, more) in kinds.items():
            path = images / "components" / f"{name}.yaml"
            path.write_text(component(kind, install, name, commits[name], **more), encoding="utf-8")

    checkout = small_checkout(cannery, root, NAME, yaml.safe_dump(profile), add_components)
    done = checkout.build_py("image", NAME, "--git-mirror", str(mirror), "--json", "--no-verify")
    references = json.loads(done.stdout)["references"]
    reference = references[0]
    found = json.loads(cannery.docker("image", "inspect", reference).stdout)[0]["RootFS"]["Layers"]
    context = read_context(root, {"git_mirror": str(mirror)})
    yield Twice(found, *in_boxes(context, root / "out-of-boxes", reference))
    cannery.docker("image", "rm", "--force", *references)


def in_boxes(context: Context, folder: Path, reference: str) -> tuple[list[str], list[str]]:
    """Make the image in boxes, and elsewhere from what was shared; return the layers of both.

    The store has its stand-in afterwards.
    """
    plan = planned(context, NAME, Options(), Hashes.NEEDED).plan
    place = store_place(context)
    assert plan.reference == reference
    work = Work(context, context.catalog(), plan, place)
    try:
        built(work, folder, BuildOptions())
        return list(place.attributes(reference)["RootFS"]["Layers"]), without_boxes(work, folder)
    finally:
        for name in (reference, foundation_reference(plan)):
            place.store.remove(name)


def without_boxes(work: Work, folder: Path) -> list[str]:
    """Make the image with an empty cache on a host that runs none of its programs; return its layers."""
    with Registry(folder / "registry", work.context.cache) as registry:
        login(folder / "docker", [registry.host])
        env = {**work.context.env, "DOCKER_CONFIG": str(folder / "docker")}
        share_parts(work, dock_of(replace(work.context, env=env), work.place, work.plan, registry.host, is_push=True))
        elsewhere = replace(work.context, cache=folder / "cache", env=env)
        bare_cache(work.context.cache, elsewhere.cache)
        place = replace(store_place(elsewhere), why_not="no box is made here")
        plan = planned(elsewhere, NAME, Options(), Hashes.NEEDED).plan
        other = Work(elsewhere, work.catalog, plan, place)
        with pytest.raises(UnableError, match="cannot make the foundation"):
            built(other, folder / "other", BuildOptions())
        built(other, folder / "other", BuildOptions(), dock_of(elsewhere, place, plan, registry.host))
        layers = list(place.attributes(plan.reference)["RootFS"]["Layers"])
        below = place.store.needed(foundation_reference(plan)).layers
        sources = [layer for layer in plan.layers if layer.kind is LayerKind.SOURCE]
        assert sum(not place.store.is_on_disk(layer) for layer in layers) == len(below) + len(sources)
        return layers


def test_layers_are_those_of_the_engine(twice: Twice) -> None:
    assert len(twice.store) == len(twice.engine)
    assert twice.store[:SYSTEM] == twice.engine[:SYSTEM]
    assert twice.store[SYSTEM + 1 :] == twice.engine[SYSTEM + 1 :]


def test_a_host_without_boxes_makes_the_same_image_from_what_was_shared(twice: Twice) -> None:
    assert twice.shared == twice.store
