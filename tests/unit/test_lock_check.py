"""A lock that is not the answer to its request is noticed, whatever was done to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import package
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.version import Version

from cannery.errors import UsageError
from cannery.lock.lock import Lock, LockedPackage, format_lock, parse_lock, wheel_rank
from cannery.lock.request import LockRequest, lock_problems
from cannery.vocab import Arch

INDEXES = {"cpu", "other"}
NATIVE = "cp311-cp311-manylinux_2_28_x86_64.whl"
REQUEST = LockRequest(
    profile="stack",
    python="3.11",
    arch=Arch.AMD64,
    requirements=(
        "Torch==2.13.0+cpu",
        "ray[default]>=2.50",
        "torch_npu==2.13.0",
        'tomli; python_version < "3.11"',
        'other==1; platform_machine == "aarch64"',
    ),
    constraints=("click<9", "absent>=5"),
    overrides=("sympy==1.14",),
    excludes=("Triton",),
    exclude_newer="2026-11-20",
    bindings=(("torch", "cpu"), ("torchvision", "cpu")),
    stand_ins=(),
)
PACKAGES = (
    package("antlr4", "4.9.3", file="antlr4-4.9.3.tar.gz", via=("ray",)),
    package("click", "8.1.0", via=("antlr4", "ray[default]")),
    package("ray", "2.52.0", file=f"ray-2.52.0-{NATIVE}"),
    package("sympy", "1.14.0", via=("torch",)),
    package("torch", "2.13.0+cpu", file=f"torch-2.13.0+cpu-{NATIVE}", index="cpu"),
    package("torch-npu", "2.13.0", file=f"torch_npu-2.13.0-{NATIVE}"),
)
LOCK = Lock("stack", "3.11", Arch.AMD64, REQUEST.digest, "2026-11-20", "uv 0", PACKAGES)


def problems(lock: Lock, request: LockRequest = REQUEST) -> tuple[str, ...]:
    return lock_problems(lock, request, frozenset(INDEXES))


def changed(wanted: str, **changes: object) -> Lock:
    """The lock with one package changed."""
    return replace(LOCK, packages=tuple(replace(p, **changes) if p.name == wanted else p for p in PACKAGES))


def noticed(lock: Lock) -> bool:
    """Whether the lock is refused, read from its own text."""
    return refused(format_lock(lock)) is None


def refused(text: str) -> Lock | None:
    """Return the lock of a text that is taken, None for one that is refused."""
    try:
        lock = parse_lock(text, "lock")
    except UsageError:
        return None
    return None if problems(lock) else lock


def test_the_answer_has_no_problem() -> None:
    assert problems(LOCK) == ()
    assert refused(format_lock(LOCK)) == LOCK


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        (
            changed("torch-npu", version="2.14.0", file=f"torch_npu-2.14.0-{NATIVE}"),
            "torch_npu==2.13.0: the lock has 2.14.0",
        ),
        (changed("torch", version="2.13.0", file=f"torch-2.13.0-{NATIVE}"), "Torch==2.13.0+cpu: the lock has 2.13.0"),
        (changed("ray", version="2.49", file=f"ray-2.49-{NATIVE}"), "ray[default]>=2.50: the lock has 2.49"),
        (changed("click", version="9.0", file="click-9.0-py3-none-any.whl"), "click<9: the lock has 9.0"),
        (changed("sympy", version="1.13", file="sympy-1.13-py3-none-any.whl"), "sympy==1.14: the lock has 1.13"),
        (changed("ray", file="ray-2.52.0-cp312-cp312-manylinux_2_28_x86_64.whl"), "does not fit Python 3.11 on amd64"),
        (changed("ray", file="ray-2.52.0-cp311-cp311-manylinux_2_28_aarch64.whl"), "does not fit Python 3.11 on amd64"),
        (changed("ray", file="ray-2.52.1.tar.gz"), "does not fit the file ray-2.52.1.tar.gz"),
        (changed("ray", file="sympy-2.52.0-py3-none-any.whl"), "ray==2.52.0 does not fit the file sympy-"),
        (changed("ray", file="ray.whl"), "neither a wheel's nor an sdist's name"),
        (changed("ray", index="zzz"), "ray: from index zzz in the lock, it has to come from index default"),
        (changed("ray", index="other"), "ray: from index other in the lock, it has to come from index default"),
        (changed("torch", index="default"), "torch: from index default in the lock, it has to come from index cpu"),
        (replace(LOCK, packages=PACKAGES[:3]), "Torch==2.13.0+cpu: not in the lock"),
        (
            replace(LOCK, packages=(*PACKAGES, package("triton", via=("torch",)))),
            "Triton: in the lock, and excluded",
        ),
        (replace(LOCK, profile="other"), "profile: the lock has other, stack is asked"),
        (replace(LOCK, python="3.12"), "Python: the lock has 3.12, 3.11 is asked"),
        (replace(LOCK, arch=Arch.ARM64), "arch: the lock has arm64, amd64 is asked"),
        (replace(LOCK, exclude_newer="2026-11-21"), "date bound: the lock has 2026-11-21, 2026-11-20 is asked"),
        (replace(LOCK, inputs="ab" * 32), "have changed since the lock was made"),
    ],
)
def test_each_problem_is_reported(lock: Lock, words: str) -> None:
    found = problems(lock)
    assert any(words in problem for problem in found), found
    assert noticed(lock)


def test_an_index_that_the_catalog_has_lost() -> None:
    assert lock_problems(LOCK, REQUEST, frozenset({"other"})) == ("torch: index cpu is not in the catalog",)


def test_an_override_takes_the_place_of_a_requirement_and_constraints_hold() -> None:
    request = replace(REQUEST, overrides=("ray==2.40",))
    lock = replace(changed("ray", version="2.40", file=f"ray-2.40-{NATIVE}"), inputs=request.digest)
    assert problems(lock, request) == ()
    assert problems(replace(LOCK, inputs=request.digest), request) == ("ray==2.40: the lock has 2.52.0",)
    bounded = replace(request, constraints=("ray>=2.50",))
    assert problems(replace(lock, inputs=bounded.digest), bounded) == ("ray>=2.50: the lock has 2.40",)


def test_what_is_asked_for_and_excluded_is_reported() -> None:
    request = replace(REQUEST, excludes=("Triton", "torch_NPU"))
    lock = replace(LOCK, inputs=request.digest, packages=tuple(p for p in PACKAGES if p.name != "torch-npu"))
    assert problems(lock, request) == ("torch_npu==2.13.0: asked for, and excluded",)


def test_markers_are_the_targets() -> None:
    request = replace(REQUEST, arch=Arch.ARM64, python="3.10")
    found = lock_problems(LOCK, request, frozenset(INDEXES))
    assert {'tomli; python_version < "3.11": not in the lock'} < {*found}
    assert {'other==1; platform_machine == "aarch64": not in the lock'} < {*found}


def test_prereleases_count_as_versions() -> None:
    request = replace(REQUEST, requirements=(*REQUEST.requirements, "pre>=1.0a1"))
    lock = replace(LOCK, inputs=request.digest, packages=(*PACKAGES[:2], package("pre", "1.0b2"), *PACKAGES[2:]))
    assert problems(lock, request) == ()


def test_an_incomplete_package_has_no_file_to_check() -> None:
    assert problems(changed("torch", file="", sha256="", size=0)) == ()


FILES = [
    f"{name}-{version}-{tag}.whl"
    for name in ("ray", "torch", "click")
    for version in ("2.52.0", "1")
    for tag in ("cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311-win_amd64", "cp311-cp311-musllinux_1_2_x86_64")
]
VERSIONS = st.from_regex(r"[0-9]\.[0-9]{1,2}(\.[0-9])?(\+cpu)?", fullmatch=True)
PACKAGE_EDITS = st.one_of(
    st.tuples(st.just("name"), st.from_regex(r"[a-z]{1,6}(-[a-z]{1,4})?", fullmatch=True)),
    st.tuples(st.just("version"), VERSIONS),
    st.tuples(st.just("index"), st.sampled_from(["default", "cpu", "other", "zzz"])),
    st.tuples(st.just("file"), st.sampled_from(FILES)),
)


@given(st.sampled_from(PACKAGES), PACKAGE_EDITS)
def test_an_edit_of_a_packages_field_is_noticed(one: LockedPackage, edit: tuple[str, Any]) -> None:
    field, value = edit
    assume(getattr(one, field) != value)
    assume(field != "version" or Version(value) != Version(one.version))
    assert noticed(changed(one.name, **{field: value}))


@given(
    st.one_of(
        st.tuples(st.sampled_from(["profile", "python", "inputs", "exclude_newer"]), st.text(max_size=12)),
        st.tuples(st.just("arch"), st.sampled_from(Arch)),
    )
)
def test_an_edit_of_the_header_is_noticed(edit: tuple[str, Any]) -> None:
    field, value = edit
    assume(getattr(LOCK, field) != value)
    assert noticed(replace(LOCK, **{field: value}))


TEXT = format_lock(LOCK)
LINES = TEXT.splitlines(keepends=True)


@given(st.integers(0, len(LINES) - 1), st.integers(1, len(LINES)))
def test_lines_that_were_cut_out_are_noticed(start: int, count: int) -> None:
    assert refused("".join(LINES[:start] + LINES[start + count :])) is None


@given(st.integers(0, len(TEXT) - 2))
def test_a_truncated_text_is_noticed(length: int) -> None:
    assert refused(TEXT[:length]) is None


@given(st.sets(st.sampled_from(PACKAGES), max_size=len(PACKAGES) - 1))
def test_packages_that_are_gone_are_noticed_by_the_header(kept: set[LockedPackage]) -> None:
    text = format_lock(replace(LOCK, packages=tuple(p for p in PACKAGES if p in kept)))
    assert refused(text.replace(f'"packages": {len(kept)}', f'"packages": {len(PACKAGES)}')) is None


@given(st.integers(0, len(TEXT) - 1), st.characters(codec="ascii"))
def test_a_character_typed_over_changes_at_most_what_the_download_checks(place: int, sign: str) -> None:
    """Hash, size and a file name that fits as well are the download's to refuse, and who asked is for readers alone."""
    found = refused(TEXT[:place] + sign + TEXT[place + 1 :])
    if found is None:
        return
    for before, after in zip(PACKAGES, found.packages, strict=True):
        assert (after.name, Version(after.version), after.index) == (before.name, Version(before.version), before.index)
        assert after.is_sdist or wheel_rank(after.file, "3.11", Arch.AMD64) is not None
    assert replace(found, packages=PACKAGES, resolver=LOCK.resolver) == LOCK


def test_the_lock_of_another_arch_is_refused() -> None:
    """Copied over, it says so itself; with its header mended, its files do."""
    arm = replace(REQUEST, arch=Arch.ARM64)
    files = {p.name: p.file.replace("x86_64", "aarch64") for p in PACKAGES}
    copied = replace(
        LOCK, arch=Arch.ARM64, inputs=arm.digest, packages=tuple(replace(p, file=files[p.name]) for p in PACKAGES)
    )
    assert "arch: the lock has arm64, amd64 is asked" in problems(copied)
    mended = problems(replace(copied, arch=Arch.AMD64, inputs=REQUEST.digest))
    assert len(mended) == 3
    assert all("does not fit Python 3.11 on amd64" in problem for problem in mended)
