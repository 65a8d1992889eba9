"""An image that is in the image store, and whose wheels are not in the cache: when `image` takes it as it is."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from factories import plan
from test_store import LOWER, UPPER

from cannery.assemble.image import config_text, image_config, layer_words, planned_config, settings_of
from cannery.assemble.trial import TRIAL_LABEL
from cannery.context import Context
from cannery.errors import UnableError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.lock.io.wheels import store_path
from cannery.making.image import Built, kept
from cannery.making.parts import BuildOptions, Way
from cannery.pipeline import Work
from cannery.recipe.recipe import Options
from cannery.store.io.store import Store
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cannery.plan import Plan

Config = dict[str, Any]
FOUNDATION: Config = {"Architecture": "amd64", "Os": "linux", "Config": {"Env": ["PATH=/bin", "LANG=C"], "Cmd": ["sh"]}}


@pytest.fixture
def work(tmp_path: Path) -> Work:
    context = Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)
    place = StorePlace(Store(context.cache / "images"), {}, "amd64", context.cache)
    catalog: Any = None
    return Work(context, catalog, plan(Options(base="standin")), place)


def store_of(work: Work) -> Store:
    assert isinstance(work.place, StorePlace)
    return work.place.store


def layers_of(work: Work) -> tuple[Config, list[str]]:
    """The foundation of the plan's image, and the layers on it. They are in the store."""
    store = store_of(work)
    lower, upper = (store.add(io.BytesIO(tar)).diff_id for tar in (LOWER, UPPER))
    count = len(work.plan.layers) - len(work.plan.foundation)
    return {**FOUNDATION, "RootFS": {"Layers": [lower] * 2}}, [upper] * count


def config_of(work: Work, of: Plan | None = None) -> Config:
    """The configuration that Cannery writes for the plan, or for a plan `of` other labels."""
    return planned_config(of or work.plan, *layers_of(work))


def put(work: Work, config: Config) -> str:
    return store_of(work).put(config_text(config), work.plan.reference)


def keep(work: Work, options: BuildOptions | None = None) -> Built | None:
    return kept(work, work.context.out / work.plan.folder, options or BuildOptions())


def test_the_image_of_the_plan_is_taken_without_its_wheels(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    image = put(work, config_of(work))
    layers = len(work.plan.layers) - len(work.plan.foundation) + 2
    found = keep(work)
    assert found is not None
    assert (found.id, found.layers, found.new, found.total, found.log) == (image, layers, (), 0, None)
    assert keep(work, BuildOptions(way=Way.ASSEMBLE)) == found
    said = capsys.readouterr().err
    assert f"{work.plan.folder} is not written without its wheels (`build.py render stack` fetches them)" in said
    assert not work.context.out.exists()


def test_with_all_of_its_wheels_it_is_made_as_always(work: Work) -> None:
    put(work, config_of(work))
    packages = [*work.plan.lock.packages, *work.plan.tools.packages]
    for package in packages:
        assert keep(work) is not None
        path = store_path(package, work.context.cache)
        path.parent.mkdir(parents=True)
        with path.open("wb") as stream:
            stream.truncate(package.size)
    assert keep(work) is None


def derived(work: Work) -> Config:
    """As `docker build` makes one from the image of the plan, whose labels it has: one layer more."""
    config = config_of(work)
    layers = [*config["rootfs"]["diff_ids"], config["rootfs"]["diff_ids"][-1]]
    history = [*config["history"], {"created": config["created"], "created_by": "RUN pip install more"}]
    return {**config, "rootfs": {"type": "layers", "diff_ids": layers}, "history": history}


def edited(work: Work) -> Config:
    """The same layers and labels, with another variable."""
    config = config_of(work)
    name = next(iter(work.plan.env))
    env = [one for one in config["config"]["Env"] if not one.startswith(f"{name}=")]
    return {**config, "config": {**config["config"], "Env": [*env, f"{name}=mine"]}}


def tried(work: Work) -> Config:
    foundation, layers = layers_of(work)
    settings = settings_of(work.plan)
    settings = replace(settings, labels={**settings.labels, TRIAL_LABEL: "stack:1"})
    return image_config(foundation, layers[:1], ["cannery: what the tried set changes"], settings, work.plan.epoch)


def baked(work: Work) -> Config:
    """As BuildKit makes it: other words in its history. This host would give it another id."""
    foundation, layers = layers_of(work)
    words = [f"COPY {text}" for text in layer_words(work.plan.layers[len(work.plan.foundation) :])]
    return image_config(foundation, layers, words, settings_of(work.plan), work.plan.epoch)


@pytest.mark.parametrize(
    "other",
    [
        derived,
        edited,
        tried,
        baked,
        lambda work: config_of(work, plan(Options(base="standin", chip="a3"))),
        lambda work: config_of(work, replace(work.plan, forced=("fit",))),
        lambda work: config_of(work, replace(work.plan, base_reference="other.example/base:1")),
    ],
    ids=["derived", "edited", "tried", "baked", "another plan", "forced", "another base"],
)
def test_another_image_with_the_tag_is_not_taken(work: Work, other: Callable[[Work], Config]) -> None:
    assert put(work, other(work)) != put(work, config_of(work))
    assert keep(work) is not None
    put(work, other(work))
    assert keep(work) is None


def test_an_image_without_one_of_its_layers_is_not_taken(work: Work) -> None:
    assert keep(work) is None
    put(work, config_of(work))
    assert keep(work) is not None
    store = store_of(work)
    store.blob_path(store.needed_layer(layers_of(work)[1][0]).digest).unlink()
    assert keep(work) is None


@pytest.mark.parametrize(
    "options",
    [BuildOptions(no_cache=True), BuildOptions("mine"), BuildOptions(cache="r.example/x"), BuildOptions(way=Way.BAKE)],
)
def test_an_option_that_needs_an_engine_is_refused_as_before(work: Work, options: BuildOptions) -> None:
    put(work, config_of(work))
    with pytest.raises(UnableError, match="needs BuildKit"):
        keep(work, options)


def test_an_engine_is_not_asked(work: Work) -> None:
    engine: Any = SimpleNamespace(host="unix:///run/docker.sock", is_classic=True)
    client: Any = SimpleNamespace(images=SimpleNamespace(get=lambda _: pytest.fail("it was asked")))
    assert keep(replace(work, place=EnginePlace(engine, client, {}))) is None
