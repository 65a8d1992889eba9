"""SOURCES: which versions they choose, what is then asked, and what is no longer standard."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import ENGINE, KERNELS, PLUGIN, catalog, lock, package, recipe, source_components, source_recipe

from cannery.catalog.component import Component, parse_component
from cannery.errors import UsageError
from cannery.lock.request import lock_problems, lock_request
from cannery.recipe.recipe import Options


def released(**sdists: bool) -> dict[str, Component]:
    """The made-up components, where engine's and kernels' commits have a release; `sdists`: is it a source's."""
    found = source_components()
    for name, commit, version in (("engine", ENGINE, "0.11.0"), ("kernels", KERNELS, "1.2.0")):
        value = found[name].model_dump(mode="json", exclude_defaults=True)
        value["revisions"][commit]["release"] = version
        value["releases"][version]["sdist"] = sdists.get(name, False)
        found[name] = parse_component(value)
    return {**catalog().components, **found}


DATA = catalog(components=released(engine=True))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("release", {"engine": "0.11.0", "kernels": "1.2.0", "plugin": None}),
        ("release:kernels", {"engine": None, "kernels": "1.2.0", "plugin": None}),
        ("release: kernels , engine", {"engine": "0.11.0", "kernels": "1.2.0", "plugin": None}),
        (None, {"engine": None, "kernels": None, "plugin": None}),
        ("", {"engine": None, "kernels": None, "plugin": None}),
    ],
)
def test_releases_take_the_place_of_commits(text: str | None, wanted: dict[str, str | None]) -> None:
    found = source_recipe(Options(sources=text), DATA)
    assert {one.name: one.release for one in found.sources} == wanted
    commits = {"engine": ENGINE, "kernels": KERNELS, "plugin": PLUGIN}
    assert {one.name: one.commit for one in found.sources} == {
        name: None if version else commits[name] for name, version in wanted.items()
    }
    assert found.is_standard is not any(wanted.values())
    assert found.released == tuple(sorted(name for name, version in wanted.items() if version))


def test_the_reason_of_a_release_names_the_commit_that_it_stands_for() -> None:
    (engine,) = (one for one in source_recipe(Options(sources="release"), DATA).sources if one.name == "engine")
    assert engine.reason == f"release 0.11.0 in place of commit {ENGINE[:12]} (SOURCES)"


NO_SOURCE = "not a source at a commit that a known release can replace"


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("releases", "SOURCES: 'releases' is not known", "release, or release:NAME,NAME"),
        ("release:", "SOURCES: 'release:' is not known", "release, or release:NAME,NAME"),
        (
            "release:enginee",
            f"SOURCES: enginee is {NO_SOURCE}",
            "did you mean engine?",
        ),
        (
            "release:torch",
            f"SOURCES: torch is {NO_SOURCE}",
            "known: engine, kernels",
        ),
        (
            "release:plugin",
            f"SOURCES: plugin is {NO_SOURCE}",
            "known: engine, kernels",
        ),
    ],
)
def test_words_that_mean_nothing(text: str, what: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        source_recipe(Options(sources=text), DATA)
    assert (caught.value.what, caught.value.hint) == (what, hint)


def test_a_profile_without_such_sources_says_so() -> None:
    with pytest.raises(UsageError, match="no source of this profile has a release"):
        recipe(Options(sources="release"))


def test_the_request_says_which_file_of_a_release_is_wanted() -> None:
    found = lock_request(source_recipe(Options(sources="release"), DATA))
    assert {source.name: source.file for source in found.sources} == {
        "engine": "sdist",
        "kernels": "wheel",
        "plugin": "",
    }
    plain = lock_request(source_recipe(Options(), DATA))
    assert {source.name: source.file for source in plain.sources} == {"engine": "", "kernels": "", "plugin": ""}
    assert found.digest != plain.digest


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("engine-0.11.0.tar.gz", None),
        (
            "engine-0.11.0-py3-none-any.whl",
            "engine: engine-0.11.0-py3-none-any.whl in the lock, its source distribution",
        ),
        (None, "engine==0.11.0: not in the lock"),
    ],
)
def test_a_lock_has_the_wanted_file_of_a_release(file: str | None, problem: str | None) -> None:
    found = source_recipe(Options(sources="release:engine"), DATA)
    request = lock_request(found)
    more = (package("engine", "0.11.0", file=file),) if file else ()
    own = replace(lock(found), inputs=request.digest)
    packages = tuple(sorted((*own.packages, *more), key=lambda one: one.name))
    problems = lock_problems(replace(own, packages=packages), request, frozenset(DATA.indexes))
    mine = [text for text in problems if text.startswith("engine")]
    assert ([] if problem is None else [True]) == [text.startswith(str(problem)) for text in mine]


def test_a_source_from_git_is_no_package_of_the_lock() -> None:
    found = source_recipe(Options(), DATA)
    request = lock_request(found)
    own = lock(found)
    with_engine = sorted((*own.packages, package("engine", "0.11.0")), key=lambda one: one.name)
    problems = lock_problems(replace(own, packages=tuple(with_engine)), request, frozenset(DATA.indexes))
    assert any("engine" in text and "nothing, since it comes from git" in text for text in problems)


def test_a_release_that_is_named_by_a_revision_must_be_known() -> None:
    value = source_components()["engine"].model_dump(mode="json", exclude_defaults=True)
    value["revisions"][ENGINE]["release"] = "0.99"
    with pytest.raises(ValueError, match=r"a revision's release 0\.99 is not among the releases"):
        parse_component(value)
