"""Who makes the layers of an image: this host, or BuildKit, and why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cannery.errors import UnableError
from cannery.host.io.place import EnginePlace
from cannery.making.assemble import python_image
from cannery.making.image import built
from cannery.making.parts import BuildOptions, Way, why_baked
from cannery.recipe.recipe import Options
from cannery.vocab import Arch
from tests.unit.factories import plan

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.pipeline import Work


def work(options: Options | None = None, host: str = "unix:///run/docker.sock", driver: str = "overlay2") -> Work:
    client: Any = SimpleNamespace(
        images=SimpleNamespace(get=lambda name: SimpleNamespace(id=f"id of {name}", attrs={"Id": f"id of {name}"})),
    )
    engine: Any = SimpleNamespace(host=host, is_classic=driver != "containerd")
    place = EnginePlace(engine, client, {})
    made: Any = SimpleNamespace(plan=plan(options), place=place, context=None)
    return made  # type: ignore[no-any-return]


def test_this_host_makes_what_it_can() -> None:
    assert why_baked(work(), BuildOptions()) == ""
    assert why_baked(work(Options(base="standin", arch=Arch.ARM64)), BuildOptions()) == ""


@pytest.mark.parametrize(
    ("found", "options", "words"),
    [
        (work(), BuildOptions(no_cache=True), "--no-cache"),
        (work(), BuildOptions(builder="mine"), "mine"),
        (work(host="tcp://there:2375"), BuildOptions(), "another machine"),
        (work(driver="containerd"), BuildOptions(), "containerd"),
        (work(Options(arch=Arch.ARM64)), BuildOptions(), "amd64"),
    ],
)
def test_buildkit_makes_every_layer_where_this_host_cannot(
    tmp_path: Path, found: Work, options: BuildOptions, words: str
) -> None:
    assert words in why_baked(found, options)
    must = BuildOptions(options.builder, no_cache=options.no_cache, way=Way.ASSEMBLE)
    with pytest.raises(UnableError, match=words):
        built(found, tmp_path, must)


def test_byte_code_is_made_on_this_hosts_own_architecture() -> None:
    assert python_image(work(), "id of the target") == "id of the target"
    cross = work(Options(base="standin", arch=Arch.ARM64))
    assert python_image(cross, "id of the target") == f"id of {cross.plan.build_reference}"
    assert python_image(work(Options(arch=Arch.ARM64)), "id of the target") is None
