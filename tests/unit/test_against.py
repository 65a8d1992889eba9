"""An image against profiles: what differs, by weight, how far it is, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import factories
import jsonschema
import pytest
from factories import ENGINE, KERNELS, PLUGIN, package
from seen_images import ENV, HOME, SITE, STACK, bases, git_tree, metadata, origin, seen, system

from cannery.against.compare import Comparison, compare, nearest
from cannery.against.difference import Difference, Kind
from cannery.against.expected import Expected, asked_files, expected
from cannery.against.facts import take_inventory
from cannery.against.packages import is_equal
from cannery.against.report import report_lines, report_value
from cannery.catalog.component import Import, parse_component
from cannery.recipe.recipe import Options
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.against.seen import Seen
    from cannery.recipe.recipe import Recipe

SCHEMA = json.loads((Path(__file__).resolve().parent.parent.parent / "docs/against-report.schema.json").read_text())
WITHOUT_OTHERS = {"vllm": "0.1", "pip": "25.0"}


def want(options: Options | None = None) -> Expected:
    recipe = factories.recipe(options)
    return expected(recipe, factories.lock(recipe), factories.catalog())


def against(one: Seen, wanted: Expected | None = None) -> Comparison:
    return compare(wanted or want(), take_inventory(one, bases().bases))


def told(found: Comparison, *, notes: bool = False) -> list[tuple[Kind, str, str, str]]:
    """(kind, subject, wanted, found) of the differences; of those that matter alone unless `notes`."""
    return [(d.kind, d.subject, d.wanted, d.found) for d in found.differences if notes or d.kind.matters]


def changed(**versions: str) -> dict[str, str]:
    return {**STACK, **versions}


def test_an_equal_image() -> None:
    found = against(seen())
    assert (found.differences, found.extras, found.distance, found.is_equal) == ((), (), 0.0, True)
    assert (found.packages, found.sources) == ((6, 6), (0, 0))


def test_what_breaks_first_comes_first() -> None:
    packages = changed(torch="2.8.0", numpy="1.26.4", ray="2.49.0")
    del packages["sympy"]
    found = against(seen(packages, env={**ENV, "RAY_OPTIONS": ""}))
    assert told(found) == [
        (Kind.BREAKS, "torch", "2.9.0+cpu", "2.8.0"),
        (Kind.MISSING, "sympy", "1.14.0", ""),
        (Kind.VERSION, "ray", "2.50.0", "2.49.0"),
        (Kind.VERSION, "numpy", "2.3.0", "1.26.4"),
        (Kind.ENVIRONMENT, "RAY_OPTIONS", '--say "it\'s $here"', ""),
    ]
    assert found.packages == (2, 6)
    assert not found.is_equal


@pytest.mark.parametrize(
    ("wanted", "found", "equal"),
    [
        ("2.9.0+cpu", "2.9.0", True),
        ("2.9.0", "2.9.0+cpu", True),
        ("0.10.1", "0.10.1+empty", True),
        ("2.9.0+cpu", "2.9.0+cu128", False),
        ("2.9.0", "2.9.0+cu128", False),
        ("2.9.0", "2.9", True),
        ("2.9.0", "2.9.0.post1", False),
        ("2.9.0", "", False),
        ("2.9.0", "no version", False),
    ],
)
def test_which_versions_are_one_package(wanted: str, found: str, *, equal: bool) -> None:
    assert is_equal(wanted, found) is equal


def test_both_tritons_and_cuda_break() -> None:
    found = against(
        seen(changed(triton="3.2.0", triton_ascend="3.2.0", nvidia_cublas_cu12="12.4", nvidia_nccl_cu12="2"))
    )
    assert told(found) == [
        (Kind.BREAKS, "one folder for two", "one of them", "triton 3.2.0 and triton-ascend 3.2.0"),
        (Kind.BREAKS, "nvidia-*", "none", "nvidia-cublas-cu12, nvidia-nccl-cu12"),
    ]
    assert found.extras == ("nvidia-cublas-cu12 12.4", "nvidia-nccl-cu12 2", "triton 3.2.0", "triton-ascend 3.2.0")


def test_packages_beside_the_profile_are_no_difference() -> None:
    found = against(seen(changed(**WITHOUT_OTHERS)))
    assert (found.extras, found.differences) == (("vllm 0.1",), ())


def test_another_cann_and_python() -> None:
    other = "/opt/v/lib/python3.10/site-packages"
    texts = {**system("8.3.rc1"), **metadata(STACK, other)}
    home = "/usr/local/Ascend/cann-8.3.rc1"
    found = against(seen(texts=texts, env={**ENV, "ASCEND_TOOLKIT_HOME": home, "PATH": "/opt/v/bin"}))
    assert told(found) == [
        (Kind.BREAKS, "CANN", "8.5.0", "8.3.rc1"),
        (Kind.BREAKS, "Python", "3.11", "3.10"),
    ]
    notes = [one.subject for one in found.differences if one.kind is Kind.NOTE]
    assert notes == ["another toolkit", "another Python"]


def test_nothing_there_at_all() -> None:
    found = against(replace(seen({}), texts={}, env={}, links={}, present=frozenset()))
    assert found.distance == 1.0
    kinds = {kind for kind, *_ in told(found)}
    assert kinds == {Kind.BREAKS, Kind.MISSING, Kind.ENVIRONMENT}
    assert (Kind.BREAKS, "Python", "3.11", "none that has packages") in told(found)


def test_an_os_alone_is_a_note_and_on_a_stand_in_nothing() -> None:
    debian = {"/usr/lib/os-release": "ID=debian\nVERSION_ID=12\n"}
    assert told(against(seen(texts=debian)), notes=True) == [(Kind.NOTE, "OS", "ubuntu22.04", "debian12")]
    assert against(seen(texts=debian), want(Options(base="standin"))).differences == ()


def test_a_toolkit_home_by_another_name_is_the_same() -> None:
    links = {**seen().links, "/usr/local/Ascend/latest": "cann-8.5.0"}
    assert against(seen(env={**ENV, "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/latest"}, links=links)).differences == ()


def test_preloaded_libraries() -> None:
    elsewhere = "/usr/lib/x86_64/libjemalloc.so.2"
    assert against(seen(env={**ENV, "LD_PRELOAD": elsewhere})).differences == ()
    gone = against(seen(env={**ENV, "LD_PRELOAD": "/gone/libjemalloc.so.2"}))
    assert told(gone) == [(Kind.ENVIRONMENT, "LD_PRELOAD", "a library that is there", "/gone/libjemalloc.so.2")]
    none = against(seen(env={**ENV, "LD_PRELOAD": ""}))
    assert told(none) == [
        (Kind.ENVIRONMENT, "LD_PRELOAD", "/usr/local/lib/libjemalloc.so.2", "not in ENV; the library is there")
    ]


def test_leftovers_do_not_make_it_another_image() -> None:
    found = against(seen(env={**ENV, "http_proxy": "http://p"}))
    assert found.is_equal
    assert told(found, notes=True) == [
        (Kind.LEFTOVER, "proxy settings in ENV: http_proxy", "", "they hold in every container of it")
    ]


# Sources.

SOURCES = {"torch": "2.9.0", "torch_npu": "2.9.0", "engine": "0.11.0", "kernels": "1.2.0", "plugin": "1.0"}


def of_sources(recipe: Recipe | None = None) -> Expected:
    found = recipe or factories.source_recipe()
    lock = replace(factories.lock(found), packages=(package("torch", "2.9.0"), package("torch-npu", "2.9.0")))
    return expected(found, lock, factories.catalog())


def sources(texts: Mapping[str, str], packages: Mapping[str, str] = SOURCES, **changes: object) -> Comparison:
    return against(seen(packages, texts, **changes), of_sources())


EXACT = {
    **origin("engine", "0.11.0", url="https://g.example/engine", vcs_info={"commit_id": ENGINE}),
    **origin("plugin", "1.0", url="file:///src/plugin", dir_info={"editable": True}),
    **git_tree("/src/plugin", PLUGIN),
    **origin("kernels", "1.2.0", url="file:///w/k", dir_info={}),
    **git_tree("/w/k", KERNELS, "git@g.example:made-up/kernels.git"),
}


def test_sources_by_metadata_and_by_the_trees_they_were_installed_from() -> None:
    found = sources(EXACT)
    assert (found.differences, found.sources, found.distance) == ((), (3, 3), 0.0)


def test_a_source_at_another_commit() -> None:
    old = {**EXACT, **git_tree("/src/plugin", ENGINE)}
    found = sources(old)
    assert found.sources == (2, 3)
    assert told(found) == [
        (Kind.SOURCE, "plugin", f"{PLUGIN[:12]} (1.0)", f"1.0, {ENGINE[:12]} by HEAD of /src/plugin")
    ]
    assert 0 < found.distance < 0.5


def test_a_known_other_commit_is_named_by_its_version() -> None:
    other = origin("engine", "0.10.0", url="https://g.example/engine", vcs_info={"commit_id": factories.ENGINE_OLD})
    found = sources({**EXACT, **other}, {**SOURCES, "engine": "0.10.0"})
    (difference,) = [one for one in found.differences if one.subject == "engine"]
    assert difference.note == "version 0.10.0 of an unknown day"


def test_a_version_that_fits_without_a_commit_is_a_note() -> None:
    found = sources({})
    assert found.is_equal
    assert [(d.kind, d.subject, d.note) for d in found.differences] == [
        (Kind.NOTE, name, "nothing in the image tells the commit") for name in ("engine", "kernels", "plugin")
    ]


def test_the_commit_in_a_version_decides() -> None:
    plain = {path: text for path, text in EXACT.items() if "kernels" not in path}
    assert sources(plain, {**SOURCES, "kernels": f"1.2.0+g{KERNELS[:8]}"}).differences == ()
    found = sources(plain, {**SOURCES, "kernels": "1.2.0+g0123456"})
    assert [(kind, subject) for kind, subject, *_ in told(found)] == [(Kind.SOURCE, "kernels")]


def test_a_missing_source() -> None:
    packages = {name: version for name, version in SOURCES.items() if name != "engine"}
    found = sources(EXACT, packages)
    assert told(found) == [(Kind.SOURCE, "engine", f"{ENGINE[:12]} (0.11.0)", "")]
    assert found.differences[0].note == "nor a tree of made-up/engine"


def test_a_clone_beside_an_installed_package_says_nothing_of_it() -> None:
    found = sources({**EXACT, **git_tree("/w/engine", PLUGIN), **origin("engine", "0.11.0")})
    assert found.is_equal
    assert [(d.subject, d.found) for d in found.differences] == [("engine", "0.11.0")]


def tree_of_engine(texts: Mapping[str, str], packages: Mapping[str, str]) -> Comparison:
    """An image against a profile that wants the whole tree of `engine`."""
    components = factories.source_components()
    imports = (Import(module="engine.core"),)
    whole = components["engine"].model_copy(update={"install": Install.TREE, "imports": imports})
    assert asked_files([whole]) == (("engine/core/__init__.py",), ())
    data = factories.catalog(components={**factories.components(), **components, "engine": whole})
    return against(seen(packages, texts), of_sources(factories.source_recipe(found=data)))


def test_a_whole_tree_is_wanted_and_there() -> None:
    tree = git_tree("/w/copy", ENGINE, "https://g.example/made-up/engine")
    packages = {name: version for name, version in SOURCES.items() if name != "engine"}
    assert tree_of_engine({**EXACT, **tree}, packages).differences == ()
    assert told(tree_of_engine({**EXACT, **git_tree("/w/Engine", PLUGIN)}, packages)) == [
        (Kind.SOURCE, "engine", f"{ENGINE[:12]} (0.11.0)", f"{PLUGIN[:12]} by HEAD of /w/Engine")
    ]


def test_a_whole_tree_is_wanted_and_a_copy_without_git_is_there() -> None:
    packages = {name: version for name, version in SOURCES.items() if name != "engine"}
    (note,) = tree_of_engine({**EXACT, "/work/engine/core/__init__.py": ""}, packages).differences
    assert (note.kind, note.subject, note.found) == (Kind.NOTE, "engine", "a tree at /work")
    (missing,) = tree_of_engine(EXACT, packages).differences
    assert (missing.kind, missing.found) == (Kind.SOURCE, "")


def test_a_whole_tree_is_wanted_and_a_package_is_there() -> None:
    installed = {f"{SITE}/engine/core/__init__.py": ""}
    (note,) = tree_of_engine({**EXACT, **installed, "/work/engine/core/__init__.py": ""}, SOURCES).differences
    assert (note.kind, note.found) == (Kind.NOTE, "a tree at /work")
    (difference,) = tree_of_engine({**EXACT, **installed}, SOURCES).differences
    assert (difference.kind, difference.subject) == (Kind.SOURCE, "engine")
    assert difference.note == f"a package in {SITE}, not the whole tree"


def test_the_manifest_tells_while_the_version_is_its_own() -> None:
    manifest = {
        "schema": 1, "profile": "sources", "plan": "0", "target": {}, "patches": [],
        "sources": [{"component": "engine", "version": "0.11.0", "commit": ENGINE}],
    }  # fmt: skip
    texts = {"/opt/cannery/manifest.json": json.dumps(manifest)}
    assert [d.subject for d in sources(texts).differences] == ["kernels", "plugin"]
    found = sources(texts, {**SOURCES, "engine": "0.12.0"})
    assert told(found) == [(Kind.SOURCE, "engine", f"{ENGINE[:12]} (0.11.0)", "0.12.0")]


def test_a_release_stands_in_for_its_commit() -> None:
    components = factories.source_components()
    engine = components["engine"]
    revision = engine.revisions[ENGINE].model_copy(update={"release": "0.11.1", "version": "0.11.1.dev3"})
    changed_engine = engine.model_copy(update={"revisions": {ENGINE: revision}})
    catalog = factories.catalog(components={**factories.components(), **components, "engine": changed_engine})
    found = against(
        seen({**SOURCES, "engine": "0.11.1"}, EXACT | origin("engine", "0.11.0")),
        of_sources(factories.source_recipe(found=catalog)),
    )
    assert found.is_equal
    (note,) = found.differences
    assert (note.subject, note.note) == ("engine", "the release that stands in for it")


# Patches.


def patched(texts: Mapping[str, str], present: frozenset[str] = frozenset()) -> Comparison:
    hook = {"name": "hook", "component": "engine", "file": "engine/__init__.py", "imports": "plugin", "when": "npu"}
    cuda = {"name": "no-kernels", "component": "engine", "file": "engine/k.py", "comments_out": "from . import cuda"}
    plugin = parse_component(
        {
            **factories.source_components()["plugin"].model_dump(exclude_none=True),
            "patch_sets": {"folder": "plugin/patch", "repos": {"engine": "engine"}},
            "edits": [{**hook, "reason": "the plugin does nothing else"}, {**cuda, "reason": "no CUDA here"}],
        }
    )
    components = {**factories.components(), **factories.source_components(), "plugin": plugin}
    assert asked_files(factories.catalog(components=components).sources.values()) == (
        ("engine/__init__.py", "engine/k.py"),
        ("plugin/patch",),
    )
    wanted = of_sources(factories.source_recipe(found=factories.catalog(components=components)))
    return against(seen(SOURCES, {**EXACT, **texts}, present=present | seen().present), wanted)


def test_edits_that_are_made_are_no_difference() -> None:
    made = {
        f"{SITE}/engine/__init__.py": "X = 1\nif npu:\n    import plugin\n",
        f"{SITE}/engine/k.py": "# from . import cuda\n",
    }
    assert patched(made).differences == ()


def test_edits_that_are_not_made() -> None:
    plain = {f"{SITE}/engine/__init__.py": "import plugins\n", f"{SITE}/engine/k.py": "try:\n    from . import cuda\n"}
    found = patched(plain)
    assert told(found) == [
        (Kind.PATCH, "hook (plugin)", "import plugin", f"not in {SITE}/engine/__init__.py"),
        (Kind.PATCH, "no-kernels (plugin)", "`from . import cuda` commented out", f"in force in {SITE}/engine/k.py"),
    ]
    assert not found.is_equal


def test_patches_are_named() -> None:
    folder = "/src/plugin/plugin/patch/engine/aaaa"
    found = patched({}, frozenset({f"{folder}/one.patch", f"{folder}/two.patch", "/else/three.patch"}))
    assert found.is_equal
    assert [(d.subject, d.found) for d in found.differences] == [("patches of plugin", f"2 in {folder}: one, two")]


# The nearest, and what is said.


def test_the_nearest_profile() -> None:
    found = nearest([against(seen(), want()), against(seen(), of_sources())])
    assert [one.name for one in found] == ["stack", "sources"]
    found = nearest([against(seen(SOURCES, EXACT), want()), against(seen(SOURCES, EXACT), of_sources())])
    assert [one.name for one in found] == ["sources", "stack"]


def test_another_version_is_nearer_than_none() -> None:
    gone = {name: version for name, version in STACK.items() if name != "ray"}
    distances = [against(seen(packages)).distance for packages in (STACK, changed(ray="2.49.0"), gone)]
    assert distances == sorted(distances)
    assert len(set(distances)) == 3


def test_the_report_as_lines() -> None:
    one = seen(changed(torch="2.8.0", left="1"), env={**ENV, "http_proxy": "p"})
    inventory = take_inventory(one, bases().bases)
    found = nearest([compare(want(), inventory), compare(of_sources(), inventory)])
    assert list(report_lines("mine:1", inventory, found, {"third": "no lock"})) == [
        f"mine:1: amd64, ubuntu22.04, Python 3.11 at {HOME}, CANN 8.5.0, 7 distributions",
        "profile  distance  packages  sources  CANN          Python",
        "stack    0.15      5 of 6    none     8.5.0, equal  3.11, equal",
        "sources  0.50      1 of 2    0 of 3   8.5.0, equal  3.11, equal",
        "third: not compared: no lock",
        "breaks first:",
        "  torch: 2.8.0, wanted: 2.9.0+cpu (named by the profile)",
        "left over:",
        "  proxy settings in ENV: http_proxy: they hold in every container of it",
        "beside the profile: 1 packages: left 1",
        (
            "the nearest profile is stack: 5 of 6 packages are equal, CANN is equal, Python is equal; "
            "differences that matter: 1"
        ),
    ]


def test_long_lists_are_folded() -> None:
    recipe = factories.recipe()
    many = tuple(package(f"p{number:02}") for number in range(40))
    wanted = expected(recipe, replace(factories.lock(recipe), packages=many), factories.catalog())
    inventory = take_inventory(seen({f"x{number:02}": "1" for number in range(20)}), bases().bases)
    lines = list(report_lines("mine:1", inventory, [compare(wanted, inventory)], {}))
    assert "  … and 25 more (--json)" in lines
    assert lines[-2].endswith("x11 1 and 8 more")
    assert lines[-1].startswith("profile stack: 0 of 40 packages are equal")


def test_the_report_as_json() -> None:
    inventory = take_inventory(seen(changed(torch="2.8.0"), env={**ENV, "http_proxy": "p"}), bases().bases)
    found = [compare(want(), inventory)]
    value = report_value("mine:1", "sha256:" + "0" * 64, inventory, found, {"third": "no lock"})
    jsonschema.validate(value, SCHEMA)
    assert (value["profile"], value["equal"], value["image"]["made_by"]) == ("stack", False, None)
    assert value["differences"][0] == {
        "kind": "breaks",
        "matters": True,
        "subject": "torch",
        "wanted": "2.9.0+cpu",
        "found": "2.8.0",
        "note": "named by the profile",
    }
    assert [(one["kind"], one["matters"]) for one in value["differences"][1:]] == [("leftover", False)]
    empty = take_inventory(replace(seen({}), texts={}), bases().bases)
    jsonschema.validate(report_value("m", "sha256:" + "0" * 64, empty, [compare(want(), empty)], {}), SCHEMA)


def test_a_difference_as_a_line() -> None:
    assert str(Difference(Kind.MISSING, "ray", "2.50.0", "")) == "ray: not there, wanted: 2.50.0"
    assert str(Difference(Kind.LEFTOVER, "a cache of 9 MB", "", "/x")) == "a cache of 9 MB: /x"
