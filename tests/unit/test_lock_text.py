"""Lock text: round trip, hand edits, staleness; which wheel fits; chains."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from cannery.errors import CanneryError, UsageError
from cannery.lock.lock import PROFILE_VIA, Lock, LockedPackage, best_wheel, chain, format_lock, parse_lock
from cannery.lock.request import LockRequest
from cannery.vocab import Arch

SHA = "0123456789abcdef" * 4
NAMES = st.from_regex(r"[a-z0-9]{1,6}(-[a-z0-9]{1,4}){0,2}", fullmatch=True)
VERSIONS = st.sampled_from(
    ["1.0", "2.13.0+cpu", "2.8.0.post2.dev20251113", "2.9.0.post1+git4c901a4", "0.0.1b1", "1!3.0"]
)
TEXTS = st.text(max_size=20)


@st.composite
def packages(draw: st.DrawFn, name: str) -> LockedPackage:
    version = draw(VERSIONS)
    index = draw(st.sampled_from(["default", "pytorch-cpu"]))
    via = tuple(sorted(draw(st.sets(st.one_of(NAMES, st.just(PROFILE_VIA)), max_size=3))))
    if draw(st.booleans()):
        return LockedPackage(name, version, "", "", 0, index, via)
    stem = name.replace("-", "_")
    file = draw(st.sampled_from([f"{stem}-{version}-py3-none-any.whl", f"{name}-{version}.tar.gz"]))
    sha256 = draw(st.text("0123456789abcdef", min_size=64, max_size=64))
    return LockedPackage(name, version, file, sha256, draw(st.integers(1, 2**40)), index, via)


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    names = sorted(draw(st.sets(NAMES, max_size=6)))
    return Lock(
        draw(TEXTS), draw(TEXTS), draw(st.sampled_from(Arch)), draw(TEXTS), draw(TEXTS), draw(TEXTS),
        tuple(draw(packages(name)) for name in names),
    )  # fmt: skip


@given(locks())
def test_round_trip(lock: Lock) -> None:
    text = format_lock(lock)
    assert parse_lock(text, "lock") == lock
    assert parse_lock(text.replace("\n", "\r\n"), "lock") == lock
    assert json.loads(text.split("\n")[0].removeprefix("# "))["complete"] is lock.complete


@given(st.one_of(st.text(), st.text().map(lambda tail: SAMPLE_TEXT + tail)))
def test_any_text_is_a_lock_or_an_error(text: str) -> None:
    try:
        parse_lock(text, "lock")
    except CanneryError as error:
        where = error.where
    else:
        where = "lock"
    assert where.startswith("lock")


ABSL = LockedPackage("absl-py", "2.5.1", "absl_py-2.5.1-py3-none-any.whl", SHA, 137673, "default", ("tensorboard",))
TORCH = LockedPackage("torch", "2.13.0+cpu", "", "", 0, "pytorch-cpu", (PROFILE_VIA, "torch-npu"))
SAMPLE = Lock("quickstart", "3.11", Arch.ARM64, "ab" * 32, "2026-11-20", "uv 0.13.9", (ABSL, TORCH))
SAMPLE_TEXT = format_lock(SAMPLE)


def test_form() -> None:
    lines = SAMPLE_TEXT.split("\n")
    assert lines[0].startswith('# {"schema": 1, "profile": "quickstart"')
    assert lines[1:] == [
        "absl-py==2.5.1 \\",
        f"    --hash=sha256:{SHA}",
        "    # absl_py-2.5.1-py3-none-any.whl, 137673 bytes, index default, via tensorboard",
        "torch==2.13.0+cpu",
        "    # incomplete: index pytorch-cpu not reached, via <profile>, torch-npu",
        "",
    ]
    assert str(Requirement(lines[4])) == "torch==2.13.0+cpu"


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        (SAMPLE_TEXT, "", 1, "JSON"),
        ('"schema": 1', '"schema": 2', 1, "schema"),
        ('"arch": "arm64"', '"arch": "mips"', 1, "arch"),
        ('"profile"', '"profil"', 1, "profil"),
        ('"complete": false', '"complete": true', 1, "complete"),
        ('"complete": false', '"complete": 0', 1, "complete"),
        ("absl-py==2.5.1 \\", "absl-py==2.5.2 \\", 2, "absl_py-2.5.1"),
        ("absl-py==2.5.1 \\", "other==2.5.1 \\", 2, "absl_py-2.5.1"),
        ("absl-py==2.5.1 \\", "absl-py==2..5 \\", 2, "version"),
        ("absl-py==2.5.1 \\", "absl-py>=2.5.1 \\", 2, "absl-py>=2.5.1"),
        (f"sha256:{SHA}", "sha256:abc", 2, "absl-py"),
        ("137673 bytes", "0 bytes", 2, "absl-py"),
        ("absl_py-2.5.1-py3-none-any.whl", "absl.whl", 2, "absl.whl"),
        ("torch==2.13.0+cpu", "<<<<<<< HEAD\ntorch==2.13.0+cpu", 5, "<<<<<<<"),
        ("    # incomplete: index pytorch-cpu not reached, via <profile>, torch-npu\n", "", 5, "torch"),
    ],
)
def test_hand_edits_name_file_and_line(old: str, new: str, line: int, word: str) -> None:
    assert old in SAMPLE_TEXT
    with pytest.raises(UsageError) as caught:
        parse_lock(SAMPLE_TEXT.replace(old, new), "images/locks/q/py3.11-arm64.txt")
    assert caught.value.where == f"images/locks/q/py3.11-arm64.txt:{line}"
    assert word in caught.value.what


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (SAMPLE_TEXT[SAMPLE_TEXT.index("torch==") :], "", "counts 2 packages, and it has 1"),
        (
            "torch==2.13.0",
            "other==1\n    # incomplete: index default not reached\ntorch==2.13.0",
            "counts 2 packages, and it has 3",
        ),
        ('"packages": 2', '"packages": 3', "counts 3 packages, and it has 2"),
    ],
)
def test_the_count_of_the_header_is_checked(old: str, new: str, counts: str) -> None:
    assert old in SAMPLE_TEXT
    text = SAMPLE_TEXT.replace(old, new).replace('"complete": false', f'"complete": {str(not new).lower()}')
    with pytest.raises(UsageError, match=counts) as caught:
        parse_lock(text, "images/locks/q/py3.11-arm64.txt")
    assert caught.value.where == "images/locks/q/py3.11-arm64.txt"
    assert "merged or edited by hand" in caught.value.what
    assert caught.value.hint == "build.py lock"


@pytest.mark.parametrize("count", ["true", '"2"', "2.0", "null"])
def test_the_count_is_a_number(count: str) -> None:
    with pytest.raises(UsageError, match="packages"):
        parse_lock(SAMPLE_TEXT.replace('"packages": 2', f'"packages": {count}'), "lock")


def test_order_is_checked() -> None:
    twice = dataclasses.replace(SAMPLE, packages=(TORCH, ABSL))
    with pytest.raises(UsageError, match="not sorted"):
        parse_lock(format_lock(twice), "lock")


REQUEST = LockRequest(
    "quickstart", "3.11", Arch.ARM64, ("torch==2.13.0+cpu", "absl-py"), (), (), (), "2026-11-20", (), ()
)


@given(st.sampled_from([f.name for f in dataclasses.fields(LockRequest) if f.name != "variant"]))  # names the file
def test_every_field_of_a_request_is_in_its_digest(field: str) -> None:
    value = getattr(REQUEST, field)
    other = Arch.AMD64 if field == "arch" else "x" if isinstance(value, str) else (*value, "x")
    assert dataclasses.replace(REQUEST, **{field: other}).digest != REQUEST.digest


def test_best_wheel() -> None:
    files = [
        "a-1-py3-none-any.whl",
        "a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-cp311-cp311-manylinux_2_34_x86_64.whl",
        "a-1-cp311-cp311-musllinux_1_2_x86_64.whl",
        "a-1-cp38-abi3-manylinux_2_28_aarch64.whl",
        "a-1-cp312-cp312-manylinux_2_28_aarch64.whl",
    ]

    def best(files: list[str], python: str, arch: Arch) -> str:
        found = best_wheel([dataclasses.replace(ABSL, file=file) for file in files], python, arch)
        return found.file if found else ""

    assert best(files, "3.11", Arch.AMD64) == "a-1-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert best(files, "3.11", Arch.ARM64) == "a-1-cp38-abi3-manylinux_2_28_aarch64.whl"
    assert best(files, "3.12", Arch.ARM64) == "a-1-cp312-cp312-manylinux_2_28_aarch64.whl"
    assert best(files, "3.10", Arch.AMD64) == "a-1-py3-none-any.whl"
    assert best(["a-1.tar.gz", "a-1-cp311-cp311-win_amd64.whl"], "3.11", Arch.AMD64) == ""
    assert best(["a-1-py3-none-any.whl", "a-1-2-py3-none-any.whl"], "3.11", Arch.AMD64) == "a-1-2-py3-none-any.whl"


def test_chains() -> None:
    def package(name: str, *via: str) -> LockedPackage:
        return dataclasses.replace(ABSL, name=name, via=via)

    found = (
        package("nvidia-nccl", "torch"),
        package("ray", PROFILE_VIA),
        package("torch", "accelerate", "ray[default]"),
        package("accelerate", "torch"),
    )
    assert chain(found, "nvidia-nccl") == ("ray", "torch", "nvidia-nccl")
