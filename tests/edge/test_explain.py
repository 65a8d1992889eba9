"""Failed locks explained, with stub indexes and the real uv: the exact words, and sets near them that were tried."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import factories
import pytest
from stub_index import StubIndex, make_sdist, make_wheel

from cannery.catalog.addresses import Index
from cannery.catalog.component import Component, parse_component
from cannery.errors import CanneryError, FindingsError, NetworkError
from cannery.explain.io.explain import Candidate, explained, near_sets
from cannery.lock.io.indexes import Asked
from cannery.lock.io.resolve import Job, resolve
from cannery.lock.request import KnownRelease, LockRequest, lock_request
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cannery.catalog.catalog import Catalog
    from cannery.recipe.recipe import Options, Recipe

DEAD = "http://127.0.0.1:9/simple"
ARM = "cp311-cp311-manylinux_2_28_aarch64"
WHERE = "profile stack, Python 3.11, amd64: "
REQUEST = LockRequest("stack", "3.11", Arch.AMD64, (), (), (), (), "2026-06-01", (), ())
COMMIT = "1" * 40
LOST = "comes from index cpu, which was not reached, and the catalog does not have its requirements"
WAY = "run the same command on a host that reaches index cpu, or"


@pytest.fixture
def stub() -> Iterator[StubIndex]:
    """The main index: torch and torch_npu in three pairs, a plugin per torch, tokenizers, and what every lock wants."""
    with StubIndex() as index:
        for name in ("attrs", "pip", "sympy", "filelock"):
            index.add(make_wheel(name, "1.0"), uploaded="2026-05-30T00:00:00Z")
        for version in ("1.26.4", "2.1.0"):
            index.add(make_wheel("numpy", version))
        for torch, npu in (
            ("2.7.1", "2.7.1.post2"),
            ("2.8.0", "2.8.0.post2"),
            ("2.9.0", "2.9.0"),
            ("2.9.0", "2.9.0.post2"),
        ):
            index.add(make_wheel("torch", torch))
            index.add(make_wheel("torch-npu", npu, [f"torch=={torch}"]))
        index.add(make_wheel("plugin", "1.0", ["torch==2.7.1"]))
        index.add(make_wheel("plugin", "2.0", ["torch==2.8.0"]))
        for version in ("0.20.3", "0.21.4", "0.22.0"):
            index.add(make_wheel("tokenizers", version))
        index.add(make_wheel("transformers", "4.57.0", ["tokenizers>=0.21,<=0.22"]))
        index.add(make_wheel("trl", "1.0", ["transformers>=4.50"]))
        yield index


def wheels(*names: str) -> dict[str, Component]:
    value = {"kind": "wheels", "summary": "something"}
    return {name: parse_component({**value, "imports": [{"module": name.replace("-", "_")}]}) for name in names}


def catalog(*pins: str, indexes: Mapping[str, Index] | None = None, **profile: object) -> Catalog:
    """A catalog with the profile `stack` of `pins`, each `name` or `name==version`."""
    components = wheels("torch", "torch-npu", "plugin", "tokenizers", "transformers", "trl", "numpy")
    chosen = [dict(zip(("name", "version"), pin.split("=="), strict=False)) for pin in pins]
    value = {"components": chosen, "exclude_newer": "2026-06-01", **profile}
    return factories.catalog(
        profiles={"stack": factories.profile(**value)}, components=components, indexes=dict(indexes or {})
    )


def failure(found: Catalog, settings: PipSettings, tmp_path: Path, options: Options | None = None) -> CanneryError:
    recipe = factories.recipe(options, found)
    return fail(lock_request(recipe), settings, tmp_path, found, recipe)


def fail(
    request: LockRequest,
    settings: PipSettings,
    tmp_path: Path,
    found: Catalog | None = None,
    recipe: Recipe | None = None,
    **indexes: Index,
) -> CanneryError:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    known = {**(found.indexes if found else {}), **indexes}
    job = Job(request, known, settings, env, tmp_path / "cache", Asked())
    with pytest.raises(CanneryError) as caught:
        resolve(job, tmp_path / "log.txt", lambda error, job, more: explained(error, job, found, recipe, more))
    assert len(str(caught.value).splitlines()) <= 20
    assert list((tmp_path / "cache").glob("locks/resolve-*")) == []
    return caught.value


def ask(*requirements: str, **more: object) -> LockRequest:
    return dataclasses.replace(REQUEST, requirements=requirements, **more)


def test_two_pins_that_exclude_each_other(stub: StubIndex, tmp_path: Path) -> None:
    found = catalog("transformers==4.57.0", "tokenizers==0.20.3")
    error = failure(found, PipSettings(index_url=stub.url), tmp_path)
    assert error.what.splitlines() == [
        "no set of versions works: no version of tokenizers meets all requirements",
        "  tokenizers ==0.20.3 by pin tokenizers 0.20.3",
        "  tokenizers >=0.21 by pin transformers 4.57.0",
        "  one of these has to change: pin tokenizers 0.20.3, pin transformers 4.57.0 (images/profiles/stack.yaml)",
        "  similar sets that work (each was resolved):",
        "    tokenizers 0.22.0 instead of 0.20.3",
    ]
    assert isinstance(error, FindingsError)
    assert str(error).startswith(WHERE)
    assert (error.hint, error.log) == ("", str(tmp_path / "log.txt"))
    log = (tmp_path / "log.txt").read_text()
    assert "No solution found" in log
    assert "another set: " in log


def test_the_table_s_rows_are_tried_first_with_all_packages_of_a_row(stub: StubIndex, tmp_path: Path) -> None:
    found = catalog("torch==2.9.0", "torch-npu==2.9.0", "plugin==2.0")
    error = failure(found, PipSettings(index_url=stub.url), tmp_path)
    lines = error.what.splitlines()
    assert lines[0] == "no set of versions works: no version of torch meets all requirements"
    assert "  torch ==2.8.0 by pin plugin 2.0" in lines
    assert lines[lines.index("  similar sets that work (each was resolved):") + 1] == (
        "    torch 2.8.0 instead of 2.9.0 and torch-npu 2.8.0.post2 instead of 2.9.0"
    )


def test_none_of_the_sets_near_it_works(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("trl", "2.0", ["plugin==9", "torch==9"]))
    found = catalog(
        "plugin==1.0", "torch==2.8.0", "trl==2.0", constraints=[{"requirement": "trl>=2", "reason": "as tried"}]
    )
    error = failure(found, PipSettings(index_url=stub.url), tmp_path)
    assert error.what.splitlines()[-1] == "  similar sets that were tried: 2; none works"


def test_a_try_does_not_install_torch_to_build_an_old_release(stub: StubIndex, tmp_path: Path) -> None:
    """Without the pin of trl, uv goes back to 0.1, whose requirements only a build with torch tells."""
    torch = stub.add(make_wheel("torch", "3.0"))
    sdist = stub.add(make_sdist("trl", "0.1", ["torch"]))
    stub.add(make_wheel("transformers", "4.40.0", ["tokenizers"]))
    error = failure(catalog("transformers==4.40.0", "trl==1.0"), PipSettings(index_url=stub.url), tmp_path)
    assert error.what.splitlines()[-2:] == [
        "  similar sets that work (each was resolved):",
        "    transformers 4.57.0 instead of 4.40.0",
    ]
    assert any(path.endswith(sdist) for path in stub.seen)
    assert not any(path.endswith(torch) for path in stub.seen)


def test_a_set_whose_index_is_dead_cannot_be_tried(stub: StubIndex, tmp_path: Path) -> None:
    found = catalog("torch==2.8.0", "plugin==1.0", indexes={"cpu": Index(urls=(DEAD,))})
    torch = {"kind": "wheels", "summary": "tensors", "index": "cpu", "imports": [{"module": "torch"}]}
    torch["metadata"] = {"2.8.0": {"requires": ["sympy"], "source": "made up"}}
    found = replace(found, components={**found.components, "torch": parse_component(torch)})
    error = failure(found, PipSettings(index_url=stub.url), tmp_path)
    assert error.what.splitlines()[4:] == [
        "  similar sets that work (each was resolved):",
        "    plugin 2.0 instead of 1.0",
        f"  sets that could not be tried: 1; torch {LOST}: index cpu ({DEAD}): connection refused",
    ]


def test_an_override_and_a_source_are_named_as_the_profile_has_them(stub: StubIndex, tmp_path: Path) -> None:
    found = catalog("transformers==4.57.0", overrides=[{"requirement": "tokenizers==0.19", "reason": "as tried"}])
    error = failure(found, PipSettings(index_url=stub.url), tmp_path)
    assert "there is no version of tokenizers==0.19" in error.what
    assert error.what.splitlines()[-3:] == [
        "  one of these has to change: pin transformers 4.57.0, override tokenizers==0.19 (images/profiles/stack.yaml)",
        "  similar sets that work (each was resolved):",
        "    tokenizers 0.22.0 without the override tokenizers==0.19",
    ]


def test_a_source_from_git_is_told_by_its_commit(stub: StubIndex, tmp_path: Path) -> None:
    found = catalog("numpy==1.26.4", "plug")
    revision = {"version": "0.11.0", "requires": ["numpy>=2"], "source": "made up"}
    value = {
        "kind": "source",
        "summary": "s",
        "hosts": {"github": "o/p"},
        "install": "wheel",
        "revisions": {COMMIT: revision},
    }
    pins = [{"name": "numpy", "version": "1.26.4"}, {"name": "plug", "commit": COMMIT}]
    profile = factories.profile(components=pins, exclude_newer="2026-06-01")
    components = {**found.components, "plug": parse_component(value)}
    found = replace(found, components=components, profiles={"stack": profile})
    lines = failure(found, PipSettings(index_url=stub.url), tmp_path).what.splitlines()
    assert lines[2] == "  numpy >=2 by source plug 0.11.0 (commit 111111111111)"
    assert lines[-1] == "    numpy 2.1.0 instead of 1.26.4"


def test_a_release_that_does_not_exist_has_sets_near_it(stub: StubIndex, tmp_path: Path) -> None:
    rows = [("2.9.0", "8.5.0"), ("2.9.0.post2", "9.0.0"), ("2.8.0.post2", "8.5.0")]
    table = factories.compatibility().model_dump()
    table["rows"] = [
        {"of": f"torch-npu=={npu}", "fits": {"torch": npu[:5], "cann": cann}, "source": "table"} for npu, cann in rows
    ]
    found = catalog("torch-npu==2.9.1")
    found = replace(found, compatibility=type(found.compatibility).model_validate(table))
    stub.add(make_wheel("torch-npu", "2.10.0"), uploaded="2026-05-01T00:00:00Z")
    error = failure(found, PipSettings(index_url=stub.url), tmp_path)
    assert error.what.splitlines() == [
        "no set of versions works",
        "  Because there is no version of torch-npu==2.9.1 and stack depends on torch-npu==2.9.1: that cannot be met.",
        "  this has to change: pin torch-npu 2.9.1 (images/profiles/stack.yaml)",
        "  similar sets that work (each was resolved):",
        "    torch-npu 2.9.0 instead of 2.9.1",
        "    torch-npu 2.8.0.post2 instead of 2.9.1",
        "    torch-npu 2.10.0 instead of 2.9.1, which no row of the table has",
    ]


def test_a_release_later_than_the_bound(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("tokenizers", "0.23.0"), uploaded="2026-07-01T01:00:00Z")
    settings = PipSettings(index_url=stub.url)
    for requirement in ("tokenizers==0.23.0", "tokenizers>=0.23"):
        late = fail(ask(requirement), settings, tmp_path)
        assert "published at 2026-07-01" in " ".join(late.what.split())
        assert "Consider" not in late.what
        assert late.hint == "`exclude_newer_packages` of the profile lets later uploads of tokenizers count"
    later = fail(ask("tokenizers==0.24", package_dates=(("tokenizers", "2026-08-01"),)), settings, tmp_path)
    assert "no version of tokenizers==0.24" in later.what


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ("user", "broken==1.0 was yanked (reason: loses data)"),
        ("kernels==1.0", "no wheels with a matching platform tag"),
        ("newer", "no wheels with a matching Python"),
        ("young==1.0", "Python>=3.12"),
        ("lonely", "no-such-thing was not found"),
    ],
)
def test_why_a_release_cannot_be_used_is_in_the_resolver_s_words(
    stub: StubIndex, tmp_path: Path, requirement: str, words: str
) -> None:
    stub.yanked[stub.add(make_wheel("broken", "1.0"))] = "loses data"
    stub.add(make_wheel("user", "1.0", ["broken"]))
    stub.add(make_wheel("kernels", "1.0", tag=ARM))
    stub.add(make_wheel("newer", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64"))
    stub.pythons[stub.add(make_wheel("young", "1.0"))] = ">=3.12"
    stub.add(make_wheel("lonely", "1.0", ["no-such-thing"]))
    error = fail(ask(requirement), PipSettings(index_url=stub.url), tmp_path)
    assert isinstance(error, FindingsError)
    assert words in " ".join(error.what.split()).replace("all versions of broken were", "broken==1.0 was")


def test_a_yanked_release_that_the_text_names_is_not_the_cause(stub: StubIndex, tmp_path: Path) -> None:
    """W6: the pin and the constraint exclude each other; that the newest torch was yanked has no part in it."""
    stub.yanked[stub.add(make_wheel("torch", "2.10.0"))] = "broken"
    stub.add(make_wheel("torch-npu", "2.10.0", ["torch==2.10.0"]))
    lines = fail(ask("torch==2.8.0", "torch-npu==2.10.0"), PipSettings(index_url=stub.url), tmp_path).what.splitlines()
    assert lines[:3] == [
        "no set of versions works: no version of torch meets all requirements",
        "  torch ==2.8.0 by requirement torch==2.8.0",
        "  torch ==2.10.0 by requirement torch-npu==2.10.0",
    ]
    bound = fail(
        ask("trl", "torch>=2.10", constraints=("torch<2.10",)), PipSettings(index_url=stub.url), tmp_path
    ).what.splitlines()
    assert bound[1:3] == ["  torch >=2.10 by requirement torch>=2.10", "  torch <2.10 by constraint torch<2.10"]


def test_a_conflict_of_more_than_two_is_shown_in_the_resolver_s_words(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("odd", "1.0", ["numpy!=2.1.0"]))
    found = catalog("odd==1.0", "numpy", constraints=[{"requirement": "numpy>=2", "reason": "as it was tried"}])
    odd = parse_component({"kind": "wheels", "summary": "s", "imports": [{"module": "odd"}]})
    found = replace(found, components={**found.components, "odd": odd})
    lines = failure(found, PipSettings(index_url=stub.url), tmp_path).what.splitlines()
    assert "numpy" in lines[1]
    assert any("constraint numpy>=2" in line for line in lines)


def test_a_bound_wheel_for_another_arch(stub: StubIndex, tmp_path: Path) -> None:
    with StubIndex(json=False) as ascend:
        ascend.add(make_wheel("triton-ascend", "3.2.0", tag=ARM))
        request = ask("triton-ascend==3.2.0", bindings=(("triton-ascend", "ascend"),))
        error = fail(request, PipSettings(index_url=stub.url), tmp_path, ascend=Index(urls=(ascend.url,)))
    assert error.what.splitlines()[0] == (
        "triton-ascend 3.2.0: index ascend has no file of it for Python 3.11 on amd64 (x86_64-manylinux_2_34); "
        "it has triton_ascend-3.2.0-cp311-cp311-manylinux_2_28_aarch64.whl"
    )


def test_who_asks_for_a_bound_release_that_its_index_lacks(stub: StubIndex, tmp_path: Path) -> None:
    stub.add(make_wheel("user", "1.0", ["triton-ascend"]))
    stub.add(make_wheel("triton-ascend", "3.2.0"))  # another build, which does not count
    with StubIndex(json=False) as ascend:
        ascend.add(make_wheel("triton-ascend", "3.2.0", tag=ARM))
        request = ask("user", bindings=(("triton-ascend", "ascend"),), constraints=("triton-ascend==3.2.0",))
        error = fail(request, PipSettings(index_url=stub.url), tmp_path, ascend=Index(urls=(ascend.url,)))
    assert error.what.splitlines()[1:3] == [
        "  triton-ascend ==3.2.0 by constraint triton-ascend==3.2.0",
        "  triton-ascend ==3.2.0 by user",
    ]


def test_a_source_that_wants_another_python(stub: StubIndex, tmp_path: Path) -> None:
    request = ask("vllm==0.11.0+empty", sources=(KnownRelease("vllm", "0.11.0+empty", (), ">=3.12"),))
    error = fail(request, PipSettings(index_url=stub.url), tmp_path)
    assert "vllm==0.11.0+empty requires Python >=3.12" in " ".join(error.what.split())


def test_a_bound_release_that_its_index_does_not_have(stub: StubIndex, tmp_path: Path) -> None:
    with StubIndex(json=False) as ascend:
        ascend.add(make_wheel("torch-npu", "2.5.1"))
        request = ask("torch-npu==2.9.0", bindings=(("torch-npu", "ascend"),))
        error = fail(request, PipSettings(index_url=stub.url), tmp_path, ascend=Index(urls=(ascend.url,)))
    assert error.what.splitlines()[0].endswith("; it has torch_npu-2.5.1-py3-none-any.whl")


def test_an_index_that_knows_a_package_serves_it_alone(stub: StubIndex, tmp_path: Path) -> None:
    with StubIndex() as extra:
        extra.add(make_wheel("tokenizers", "0.30.0"))
        settings = PipSettings(index_url=stub.url, extra_index_urls=(f"http://u:s3cret@{extra.host}/simple",))
        error = fail(ask("tokenizers==0.30.0"), settings, tmp_path)
        assert "no version of tokenizers==0.30.0" in error.what
        assert "s3cret" not in str(error) + (tmp_path / "log.txt").read_text()


def test_an_index_that_fails_at_one_page_is_network_trouble(stub: StubIndex, tmp_path: Path) -> None:
    stub.page_status["tokenizers"] = 403
    settings = PipSettings(index_url=f"http://u:s3cret@{stub.host}/simple")
    error = fail(ask("trl"), settings, tmp_path)
    assert isinstance(error, NetworkError)
    assert error.what.startswith(f"index default ({stub.url}) failed")
    assert "403" in error.what
    assert "s3cret" not in str(error)


def test_every_dead_index_is_named_at_once_without_credentials(stub: StubIndex, tmp_path: Path) -> None:
    request = ask("trl", "torch==2.0", bindings=(("torch", "cpu"),))
    settings = PipSettings(index_url=stub.url, extra_index_urls=("http://u:s3cret@127.0.0.1:9/simple",))
    urls, pages = ("http://127.0.0.1:9/a", "http://127.0.0.1:9/b"), ("http://127.0.0.1:9/pages",)
    error = fail(request, settings, tmp_path, cpu=Index(urls=urls, public_pages=pages))
    assert isinstance(error, NetworkError)
    assert error.what.splitlines() == [
        "not reached: extra index (http://127.0.0.1:9/simple): connection refused",
        f"  torch 2.0 {LOST}: {'; '.join(f'index cpu (http://127.0.0.1:9/{n}): connection refused' for n in 'ab')}",
    ]
    mirror = 'use a public mirror: export CANNERY_MIRROR_PAGES="cpu=http://127.0.0.1:9/pages"'
    assert error.hint == f"see `pip config list` for where it is named; {WAY} {mirror}"
    assert "s3cret" not in str(error)
    assert not (tmp_path / "log.txt").exists()  # uv was not called


def test_a_dead_index_without_a_public_mirror_names_the_setting(stub: StubIndex, tmp_path: Path) -> None:
    request = ask("trl", "torch==2.0+foo", bindings=(("torch", "cpu"),))
    error = fail(request, PipSettings(index_url=stub.url), tmp_path, cpu=Index(urls=(DEAD,)))
    assert isinstance(error, NetworkError)
    assert error.what == f"torch 2.0+foo {LOST}: index cpu ({DEAD}): connection refused"
    assert error.hint == f'{WAY} name a mirror of it: export CANNERY_MIRROR_INDEX="cpu=ADDRESS"'


def test_a_wheel_of_ones_own_that_is_not_there_is_no_dead_index(stub: StubIndex, tmp_path: Path) -> None:
    request = ask("trl", "torch==2.0", bindings=(("torch", "mine"),))
    error = fail(request, PipSettings(index_url=stub.url), tmp_path, mine=Index(urls=()))
    assert error.what == "torch 2.0 comes from index mine, which is a folder of yours"
    assert error.hint == "put its wheel into a folder, and name the folder with --wheelhouse"


# --- trying sets ------------------------------------------------------------------------------------------------------


def several(count: int) -> tuple[Catalog, list[Candidate]]:
    found = catalog("numpy")
    recipe = factories.recipe(found=found)
    return found, [Candidate(recipe, (("numpy", "0", str(number)),)) for number in range(count)]


def test_the_first_that_work_are_offered_in_their_order() -> None:
    found, candidates = several(6)
    seen: list[float] = []

    def attempt(_request: LockRequest, longest: float) -> Mapping[str, str] | None:
        seen.append(longest)
        return None if len(seen) == 2 else {"numpy": str(len(seen))}

    assert list(near_sets(candidates, found, attempt)) == [
        "similar sets that work (each was resolved):",
        *(f"  numpy {number} instead of 0" for number in (0, 2, 3)),
    ]
    assert len(seen) == 4  # enough worked
    assert all(0 < longest <= 12 for longest in seen)


def test_tries_end_with_the_budget() -> None:
    found, candidates = several(6)

    def attempt(_request: LockRequest, longest: float) -> None:
        time.sleep(longest)
        raise NetworkError("the resolver has no answer")

    start = time.monotonic()
    (line,) = near_sets(candidates, found, attempt, budget=0.3)
    assert line == "sets that could not be tried: 1; the resolver has no answer"
    assert time.monotonic() - start < 1.7


def test_what_could_not_be_tried_is_told_apart() -> None:
    found, candidates = several(2)

    def attempt(_request: LockRequest, _longest: float) -> None:
        raise NetworkError("index x was not reached\nmore")

    assert list(near_sets(candidates, found, attempt)) == ["sets that could not be tried: 2; index x was not reached"]
