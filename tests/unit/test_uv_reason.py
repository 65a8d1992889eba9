"""What is read out of uv's derivations. The texts in data/uv_reasons are a real uv's, of conflicts made on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from cannery.explain.derivation import BOUND, Fact, FactKind, parse_reasons
from cannery.lock.lock import PROFILE_VIA

TEXTS = Path(__file__).parent / "data/uv_reasons"


def asks(by: str, name: str, *versions: str, at: tuple[str, ...] = ()) -> Fact:
    return Fact(FactKind.ASKS, name, versions, by, at)


def mine(name: str, *versions: str) -> Fact:
    return asks(PROFILE_VIA, name, *versions)


def hidden(name: str, version: str, day: str) -> Fact:
    return Fact(FactKind.HIDDEN, name, (f"=={version}",), "exclude_newer", ("2026-06-01",), day)


def facts(name: str) -> tuple[Fact, ...]:
    return parse_reasons((TEXTS / f"{name}.txt").read_text())


PLATFORM = "has no wheels with a matching platform tag (e.g., `manylinux_2_28_x86_64`)"
CASES = {
    "pins": (
        asks("transformers", "tokenizers", ">=0.21,<=0.22", at=("<=4.57.0",)),
        mine("transformers", "==4.57.0"),
        mine("tokenizers", "==0.20.3"),
    ),
    "chain": (
        asks("transformers", "tokenizers", ">=0.21"),
        asks("trl", "transformers"),
        mine("trl"),
        mine("tokenizers", "==0.20.3"),
    ),
    "pair": (
        asks("torch-npu", "torch", "==2.7.1", at=("<=2.7.1",)),
        mine("torch", "==2.8.0"),
        mine("torch-npu", "==2.7.1"),
    ),
    "no_release": (Fact(FactKind.LACKS, "torch-npu", ("==2.9.1",)), mine("torch-npu", "==2.9.1")),
    "later": (Fact(FactKind.LACKS, "dep", ("==2.0",)), mine("dep", "==2.0"), hidden("dep", "2.0", "2026-07-01")),
    "only": (Fact(FactKind.ONLY, "dep", ("<=1.1",)), mine("dep", ">=2.0"), hidden("dep", "2.0", "2026-07-01")),
    "other_arch": (Fact(FactKind.UNUSABLE, "armonly", ("==1.0",), why=PLATFORM), mine("armonly", "==1.0")),
    "other_arch_of_a_dependency": (
        Fact(FactKind.UNUSABLE, "armonly", why=PLATFORM.replace("has", "have")),
        asks("user", "armonly"),
        mine("user"),
    ),
    "other_python": (
        Fact(
            FactKind.UNUSABLE,
            "py312",
            ("==1.0",),
            why="has no wheels with a matching Python implementation tag (e.g., `cp311`)",
        ),
        mine("py312", "==1.0"),
    ),
    "requires_python": (
        Fact(FactKind.UNUSABLE, "newpy", why="require Python >=3.12"),
        asks("np-user", "newpy"),
        mine("np-user"),
    ),
    "requested_python": (Fact(FactKind.UNUSABLE, "np", ("==1.0",), why="requires Python >=3.12"), mine("np", "==1.0")),
    "unknown": (Fact(FactKind.UNKNOWN, "no-such-thing"), asks("user2", "no-such-thing"), mine("user2")),
    "yanked": (
        Fact(FactKind.UNUSABLE, "y", (">=1.1",), why="was yanked (reason: broken build)"),
        asks("w", "y", ">=1.1"),
        mine("w"),
    ),
    # A constraint is beside what somebody asks, without a verb.
    "constraint": (
        asks("transformers", "tokenizers", ">=0.21,<=0.22", at=("<=4.57.0",)),
        asks(BOUND, "tokenizers", "<0.21"),
        mine("transformers", "==4.57.0"),
    ),
    "override": (
        Fact(FactKind.LACKS, "tokenizers", ("==0.19",)),
        asks("transformers", "tokenizers", "==0.19", at=("<=4.57.0",)),
        mine("transformers", "==4.57.0"),
    ),
    "sources": (
        asks("vllm-ascend", "torch", "==2.7.1"),
        asks("vllm", "torch", "==2.8.0"),
        mine("vllm", "==0.11.0+empty"),
        mine("vllm-ascend", "==0.11.0rc3"),
    ),
    "two_bounds": (mine("numpy", ">=2"), mine("numpy", "<2")),
    "marker": (asks("opencv", "numpy", ">=2", at=("==4.12.0",)), mine("numpy", "<2"), mine("opencv", "==4.12.0")),
    "one_of": (
        asks("wandb", "protobuf", ">=5,<5.28.0", ">5.28.0,<5.29.0", ">5.29.0", at=(">=0.30.0",)),
        asks("verl", "wandb", ">=0.30", at=(">=0.9.1",)),
        mine("protobuf", "==3.20.3"),
        mine("verl", "==0.9.1"),
    ),
    "none_in_time": (
        Fact(FactKind.LACKS, "late"),
        asks("user", "late", ">=1"),
        mine("user"),
        Fact(FactKind.HIDDEN, "late", ("==1.1",), "exclude_newer_packages", ("2026-06-01",), "2026-09-02"),
    ),
    "gap_of_one": (
        Fact(FactKind.LACKS, "pe", ("==1.5",)),
        asks("pd", "pe", ">=1.5", at=(">=3.0",)),
        asks("pd", "pe", "<=1.5", at=(">=3.0",)),
        asks("pc", "pd", ">=3.0", at=("<=1.0",)),
        mine("pc", "==1.0"),
        hidden("pe", "1.5", "2026-08-01"),
    ),
    # That two are incompatible follows, although it stands behind a `because`.
    "both": (
        asks("a", "dep", ">=2", at=("<=1.0",)),
        asks("b", "dep", "<2", at=("<=1.0",)),
        asks("b", "dep", "<1.5", at=(">=1.1",)),
        asks("a", "dep", ">=2.5", at=(">=1.1",)),
        mine("a"),
        mine("b"),
    ),
    # What follows from a numbered sentence is no fact.
    "numbered": (
        asks("k", "l", "==1", at=("==1.0",)),
        asks("three", "k", "==1", at=("==1.0",)),
        asks("three", "k", "==0", at=("<=0.0",)),
        asks("k", "l", "==0", at=("<=0.0",)),
        asks("k", "l", "==2", at=(">=2.0",)),
        asks("three", "k", "==2", at=(">=2.0",)),
        mine("three"),
        mine("l", "==5.0"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_facts_of_a_real_uv(name: str) -> None:
    assert facts(name) == CASES[name]


def test_lists_of_ranges() -> None:
    lacks, all_of, only, *rest = facts("lists")
    evens = ("<=0.0", *(f"=={n}.0" for n in range(2, 39, 2)))
    assert lacks == Fact(FactKind.LACKS, "z", ("==9",))
    assert all_of == asks("many", "z", "==9", at=evens)
    assert only == Fact(FactKind.ONLY, "many", ("<=0.0", "==1.0", ">=2.0"))
    assert rest[:2] == [Fact(FactKind.LACKS, "y", ("==42.0",)), asks("many", "y", "==42.0", at=(">=39.0",))]
    assert facts("gaps")[1] == asks(BOUND, "l", "<0", ">0")


def test_every_text_is_tried() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == {*CASES, "lists", "gaps"}


def test_other_words_and_drawings_for_the_same() -> None:
    text = (
        "  × No solution found when resolving dependencies:\n"
        "  ╰─▶ Because you require X==1 and X==1 depends on Y>=2, we can conclude that you require Y>=2.\n"
        "      And because you require Y==1, we can conclude that your requirements are unsatisfiable.\n"
    )
    assert parse_reasons(text) == (mine("x", "==1"), asks("x", "y", ">=2", at=("==1",)), mine("y", "==1"))


def test_what_is_not_understood_is_left_out() -> None:
    assert parse_reasons("error: Failed to fetch: something\n") == ()
    assert parse_reasons("Because the moon is full, we can conclude that a<1 and b are incompatible.") == ()
    assert parse_reasons("") == ()
