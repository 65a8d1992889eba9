"""Requests for sources, and the questions about paths and symlinks of a tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cannery.catalog.component import Release, Revision, Source, Submodule
from cannery.errors import UsageError
from cannery.recipe.recipe import Chosen
from cannery.sources.plan import (
    SourceRequest,
    SourceSubmodule,
    is_bad_path,
    is_inside,
    is_lfs_pointer,
    leads_out,
    leads_to,
    source_request,
    unmatched,
    with_folders,
)
from cannery.vocab import Arch, ComponentKind, Install

ONE, TWO = "1" * 40, "2" * 40


def chosen(*, commit: str | None, release: str | None = None) -> Chosen:
    sub = {"third/x": Submodule(repository="cann/x", commit=TWO)}
    component = Source(
        kind=ComponentKind.SOURCE,
        summary="x",
        hosts={"gitee": "ascend/Name", "gitcode": "Ascend/Name"},
        install=Install.TREE,
        paths=("a",),
        revisions={ONE: Revision(version="1.0", submodules=sub, source="x")},
        releases={"1.0": Release(submodules=sub, source="x")},
    )
    return Chosen("name", component, "1.0", "", Arch.ARM64, commit, release)


def test_a_request_is_made_of_a_component_and_a_submodule_is_looked_for_everywhere() -> None:
    found = source_request(chosen(commit=ONE), ["github", "gitcode", "gitee"], epoch=7)
    order = {"gitee": "cann/x", "gitcode": "cann/x", "github": "cann/x"}
    assert found == SourceRequest(
        name="name",
        commit=ONE,
        hosts={"gitee": "ascend/Name", "gitcode": "Ascend/Name"},
        epoch=7,
        submodules={"third/x": SourceSubmodule(order, TWO)},
        paths=("a",),
        local=None,
    )
    assert list(found.hosts) == ["gitee", "gitcode"]
    assert list(found.submodules["third/x"].hosts) == ["gitee", "gitcode", "github"]


def test_a_request_knows_the_release_that_may_take_its_place() -> None:
    one = chosen(commit=ONE)
    known = Revision(version="1.0", release="1.0", source="x")
    mine = replace(one, component=one.component.model_copy(update={"revisions": {ONE: known}}))
    assert source_request(mine, [], epoch=7).release == "1.0"
    assert not source_request(one, [], epoch=7).release


def test_a_release_is_no_commit() -> None:
    with pytest.raises(UsageError, match="name: neither a commit nor a local tree is named"):
        source_request(chosen(commit=None, release="1.0"), [], epoch=7)


def test_names_with_dots_are_repositories() -> None:
    assert SourceRequest("name", ONE, {"github": "..o/n..x"}, 1).hosts == {"github": "..o/n..x"}


def test_paths_are_taken_by_whole_parts() -> None:
    paths = ("a/b", "c")
    assert [is_inside(path, paths) for path in ("a/b", "a/b/x", "a/bb", "a", "c", "cc")] == [
        True,
        True,
        *[False] * 2,
        True,
        False,
    ]
    assert [leads_to(path, paths) for path in ("a", "a/b", "a/b/x", "b", "c/d", "cc")] == [True] * 3 + [
        False,
        True,
        False,
    ]
    assert is_inside("x", ())
    assert leads_to("x", ())
    assert unmatched(("a", "b", "a/x"), ("a/y", "bb")) == ("b", "a/x")
    assert unmatched((), ()) == ()


@pytest.mark.parametrize("path", ["", "/a", "a//b", "a/", ".", "../a", "a/../b", "a/./b", ".git/config", "a/.Git"])
def test_bad_paths(path: str) -> None:
    assert is_bad_path(path)


@pytest.mark.parametrize("path", ["a", ".github/x", "a/...", ".gitignore", "..a/b", " "])
def test_good_paths(path: str) -> None:
    assert not is_bad_path(path)


def test_folders_stand_before_what_is_in_them() -> None:
    assert with_folders(["b/z", "b-a", "b/c/d", "a"]) == ("a", "b", "b-a", "b/c", "b/c/d", "b/z")
    assert with_folders([]) == ()


@pytest.mark.parametrize(
    ("links", "is_out"),
    [
        ({"a": "b"}, False),
        ({"a": "/b"}, True),
        ({"a": ".."}, True),
        ({"d/a": ".."}, False),
        ({"d/a": "../.."}, True),
        ({"d/a": "..//./../x"}, True),
        ({"d/e/a": "../../x/../y"}, False),
        ({"a": "x", "x": "/etc"}, True),
        ({"a": "x/y", "x": "../z"}, True),
        ({"a": "x/..", "x": "."}, True),
        ({"a": "x/..", "x": "d/e"}, False),
        ({"a": "a"}, False),
        ({"a": "b/..", "b": "a"}, False),
        ({"a": "", "b": ""}, False),
    ],
)
def test_symlinks_that_lead_out(links: dict[str, str], is_out: bool) -> None:
    path = "d/e/a" if "d/e/a" in links else ("d/a" if "d/a" in links else "a")
    assert leads_out(path, links) is is_out


def test_lfs_pointers() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    assert is_lfs_pointer(pointer)
    assert not is_lfs_pointer(pointer + b"x" * 1024)
    assert not is_lfs_pointer(b"a " + pointer)
    assert not is_lfs_pointer(b"")
