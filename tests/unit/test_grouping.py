from __future__ import annotations

from typing import TYPE_CHECKING

from factories import package
from hypothesis import given
from hypothesis import strategies as st

from cannery.lock.lock import PROFILE_VIA, LockedPackage
from cannery.plan.make import MAX_GROUPS, OWN_LAYER_BYTES, make_groups

if TYPE_CHECKING:
    import random

NAMES = [f"p{n:02}" for n in range(70)]
SIZES = st.one_of(st.integers(1, OWN_LAYER_BYTES * 3), st.just(OWN_LAYER_BYTES), st.just(OWN_LAYER_BYTES - 1))


@st.composite
def locks(draw: st.DrawFn) -> tuple[tuple[LockedPackage, ...], tuple[str, ...]]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=70))
    vias = st.lists(st.sampled_from([*names, PROFILE_VIA]), max_size=3, unique=True).map(lambda v: tuple(sorted(v)))
    packages = [
        package(
            name, size=draw(SIZES), via=draw(vias), **({"file": f"{name}-1.0.tar.gz"} if draw(st.booleans()) else {})
        )
        for name in sorted(names)
    ]
    components = draw(st.lists(st.sampled_from([*names, "not-locked"]), unique=True, max_size=len(names)))
    return tuple(packages), tuple(components)


@given(locks(), st.randoms(use_true_random=False))
def test_groups_are_a_partition_of_at_most_max_groups_whatever_the_order(
    drawn: tuple[tuple[LockedPackage, ...], tuple[str, ...]], shuffle: random.Random
) -> None:
    packages, components = drawn
    groups = make_groups(packages, components)
    inside = [p.name for group in groups for p in group.packages]
    assert sorted(inside) == [p.name for p in packages]
    assert len(groups) <= MAX_GROUPS
    assert len({group.name for group in groups}) == len(groups), "names are stages and folders"
    assert all(
        group.packages and list(group.packages) == sorted(group.packages, key=lambda p: p.name) for group in groups
    )
    assert [g for g in groups if g.built] == [g for g in groups if any(p.is_sdist for p in g.packages)]
    other = list(packages)
    shuffle.shuffle(other)
    assert make_groups(other, components) == groups


def names(groups: object) -> list[tuple[str, list[str]]]:
    return [(g.name, [p.name for p in g.packages]) for g in groups]  # type: ignore[attr-defined]


def test_components_and_big_packages_have_a_layer_each_and_the_rest_go_with_who_brings_them() -> None:
    packages = [
        package("attrs", via=(PROFILE_VIA,)),
        package("big", size=OWN_LAYER_BYTES, via=("ray",)),
        package("click", via=("ray",)),
        package("filelock", via=("ray", "torch")),
        package("ray"),
        package("sdist", file="sdist-1.0.tar.gz", via=("ray",)),
        package("torch", size=10 * OWN_LAYER_BYTES),
    ]
    assert names(make_groups(packages, ["torch", "ray"])) == [
        ("cann-deps", ["attrs"]),
        ("torch-deps", ["filelock"]),
        ("torch", ["torch"]),
        ("ray-deps", ["click"]),
        ("big", ["big"]),
        ("ray", ["ray"]),
        ("built", ["sdist"]),
    ]


def test_a_package_just_below_the_threshold_shares() -> None:
    packages = [package("small", size=OWN_LAYER_BYTES - 1, via=("ray",)), package("ray")]
    assert names(make_groups(packages, ["ray"])) == [("ray-deps", ["small"]), ("ray", ["ray"])]


def test_a_package_is_reached_through_others_and_circles_end() -> None:
    packages = [package("a", via=("b", "ray")), package("b", via=("a",)), package("ray", via=("b",))]
    assert names(make_groups(packages, ["ray"])) == [("ray-deps", ["a", "b"]), ("ray", ["ray"])]


def test_too_many_big_packages_fold_the_smallest_first() -> None:
    packages = [package(f"big{n:02}", size=OWN_LAYER_BYTES + n, via=("ray",)) for n in range(60)] + [package("ray")]
    groups = make_groups(sorted(packages, key=lambda p: p.name), ["ray"])
    assert len(groups) == MAX_GROUPS
    assert groups[0].name == "ray-deps"
    assert max(p.size for p in groups[0].packages) < min(g.size for g in groups[1:-1])


def test_a_profile_of_very_many_components_stays_within_the_limit() -> None:
    packages = [package(name) for name in NAMES] + [package("zz", file="zz-1.0.zip")]
    groups = make_groups(packages, NAMES)
    assert len(groups) == MAX_GROUPS
    assert groups[-1].built


def test_nothing_gives_nothing() -> None:
    assert make_groups([], ["ray"]) == ()
