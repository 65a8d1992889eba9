"""What sources ask for, Pythons among it, and what a profile overrides."""

from __future__ import annotations

import pytest
from factories import (
    ENGINE_OLD,
    KERNELS,
    catalog,
    compatibility,
    package,
    recipe,
    source_components,
    source_profile,
    source_recipe,
    subject,
)

from cannery.catalog.compatibility import Compatibility
from cannery.catalog.component import parse_component
from cannery.compat.rules import check_recipe
from cannery.compat.rules.packages import overrides, requirements
from cannery.compat.rules.target import pythons
from cannery.compat.subject import Finding, in_order
from cannery.recipe.recipe import Options, Recipe
from cannery.vocab import Arch, Severity

REASON = "made up for this test"
CONTENT = (package("torch", "2.9.0+cpu"), package("torch-npu", "2.9.0"), package("numpy", "2.3.0", via=("engine",)))


def pinned(**versions: str) -> list[dict[str, str]]:
    """The components of the profile `sources` with other versions or commits."""
    return [
        {**pin.model_dump(exclude_defaults=True), **({"version": versions[pin.name]} if pin.name in versions else {})}
        for pin in source_profile().components
    ]


def torch(version: str, **changes: object) -> Recipe:
    return source_recipe(components=pinned(torch=version), **changes)


def test_a_set_in_which_every_source_has_what_it_asks() -> None:
    assert list(requirements(subject(source_recipe(), amd64=CONTENT))) == []
    assert list(requirements(subject(source_recipe()))) == []


def test_a_package_outside_what_a_source_asks_names_both_and_the_pins_that_take_it() -> None:
    assert list(requirements(subject(torch("2.8.0")))) == [
        Finding(
            Severity.ERROR,
            "requirement",
            "engine 0.11.0 asks for torch==2.9.0, the profile has torch 2.8.0",
            "images/components/engine.yaml: engine's list",
            "take a torch that torch==2.9.0 allows, "
            f"take engine at commit {ENGINE_OLD}, which takes torch 2.8.0, "
            "or override torch in images/profiles/sources.yaml and say why it still works",
        )
    ]


def test_every_requirement_that_fails_is_told_and_they_are_sorted() -> None:
    content = (package("torch", "2.7.1+cpu"), package("torch-npu", "2.9.0"), package("numpy", "3.0"))
    found = in_order(requirements(subject(source_recipe(), amd64=content)))
    assert [f.what for f in found] == [
        "engine 0.11.0 asks for numpy<3, the lock has numpy 3.0",
        "engine 0.11.0 asks for torch==2.9.0, the lock has torch 2.7.1+cpu",
        "plugin 1.0 asks for torch>=2.8, the lock has torch 2.7.1+cpu",
    ]
    assert found[0].fix == (
        "take a numpy that numpy<3 allows, or override numpy in images/profiles/sources.yaml and say why it still works"
    )


def test_a_requirement_for_another_target_does_not_count() -> None:
    """engine asks for sympy below Python 3.9 alone."""
    assert list(requirements(subject(source_recipe(), amd64=(*CONTENT, package("sympy", "0.1"))))) == []


def test_a_requirement_of_one_arch_counts_there() -> None:
    kernels = source_components()["kernels"].model_dump(exclude_defaults=True)
    kernels["revisions"][KERNELS]["requires"] = ['torch==2.9.0+other; platform_machine == "aarch64"']
    data = catalog(components={**catalog().components, "kernels": parse_component(kernels)})
    for arch, codes in (("amd64", []), ("arm64", ["requirement"])):
        found = source_recipe(Options(arch=arch), data)
        content = {arch: (package("torch", "2.9.0+cpu"), *CONTENT[1:])}
        assert [f.code for f in requirements(subject(found, data, **content))] == codes


# Overrides


def test_an_override_names_who_asks_otherwise_and_its_reason() -> None:
    """V01 (vllm-project/vllm-ascend issue 4917)."""
    found = torch("2.8.0", overrides=[{"requirement": "torch==2.8.0", "reason": REASON}])
    assert list(requirements(subject(found))) == []
    assert list(overrides(subject(found))) == [
        Finding(Severity.NOTE, "override", "torch==2.8.0 overrides: engine asks torch==2.9.0", REASON)
    ]


@pytest.mark.parametrize(
    ("constraint", "refused"), [("torch>=2.9", True), ("torch<2.9", False), ('torch>2.8; python_version < "3"', False)]
)
def test_a_constraint_against_the_profile_s_own_pin_is_refused(constraint: str, *, refused: bool) -> None:
    bound = [{"requirement": constraint, "reason": REASON}]
    what = f"images/profiles/sources.yaml has torch 2.8.0, and constraint {constraint}"
    fix = "take another version, or leave out what is inherited: `without: [torch]`"
    found = [Finding(Severity.ERROR, "constraint", what, REASON, fix)] if refused else []
    assert list(overrides(subject(torch("2.8.0", constraints=bound)))) == found


def test_a_pin_by_hand_against_a_constraint_is_left_to_the_resolver() -> None:
    bound = [{"requirement": "torch>=2.9", "reason": REASON}]
    found = source_recipe(Options(pins=("torch==2.8.0",)), constraints=bound)
    assert list(overrides(subject(found))) == []


def test_an_override_of_a_package_that_only_the_lock_has() -> None:
    found = source_recipe(overrides=[{"requirement": "numpy>=3", "reason": REASON}])
    assert [f.what for f in overrides(subject(found))] == ["numpy>=3 overrides: engine asks numpy<3"]
    locked = subject(found, amd64=(*CONTENT[:2], package("numpy", "3.1")))
    assert [f.what for f in overrides(locked)] == ["numpy>=3 overrides: engine asks numpy<3"]


@pytest.mark.parametrize(
    ("requirement", "what"),
    [
        ("numpy==2.3.0", "numpy==2.3.0 overrides what engine asks"),
        ("numpy==2.*", "numpy==2.* overrides what engine asks"),
        ("click==8.0", "click==8.0 overrides what ray and typer ask"),
        ("attrs==1.0", "attrs==1.0 overrides what packages ask"),
    ],
)
def test_an_override_that_nothing_known_contradicts_names_who_asks_at_all(requirement: str, what: str) -> None:
    found = source_recipe(overrides=[{"requirement": requirement, "reason": REASON}])
    content = (*CONTENT, package("click", "8.0", via=("<profile>", "ray", "typer")), package("attrs"))
    (finding,) = overrides(subject(found, amd64=content))
    assert (finding.what, finding.why) == (what, REASON)


def test_a_row_that_wants_another_version_is_told_in_the_same_note() -> None:
    table = compatibility().model_dump()
    rows = [*table["rows"], {"of": "kernels==1.2.0", "fits": {"torch": "2.9.1"}, "source": "table"}]
    data = catalog(compatibility=Compatibility.model_validate({**table, "rows": rows}))
    found = source_recipe(overrides=[{"requirement": "torch==2.9.0", "reason": REASON}])
    (finding,) = check_recipe(found, data)
    assert finding.what == "torch==2.9.0 overrides: kernels is made for torch 2.9.1"
    (refused,) = check_recipe(source_recipe(), data)
    assert (refused.severity, refused.code) == (Severity.ERROR, "fit")


def test_an_override_does_not_make_an_extension_one_of_another_release() -> None:
    """torch_npu X.Y.Z is built upon torch X.Y.Z: no reason makes it load with another."""
    bent = [{"requirement": "torch==2.8.0", "reason": REASON}]
    pins = [{"name": "torch", "version": "2.8.0"}, {"name": "torch-npu", "version": "2.9.0"}]
    error, note = check_recipe(source_recipe(components=pins, overrides=bent), catalog())
    assert (error.severity, error.code) == (Severity.ERROR, "fit")
    assert note.what == "torch==2.8.0 overrides what packages ask"


def test_a_pin_by_hand_takes_the_overrides_place() -> None:
    bent = [{"requirement": "torch==2.7.1", "reason": REASON}]
    found = source_recipe(Options(pins=("torch==2.8.0",)), overrides=bent)
    assert list(overrides(subject(found))) == []
    assert [f.what for f in requirements(subject(found))] == [
        "engine 0.11.0 asks for torch==2.9.0, the profile has torch 2.8.0"
    ]


# Pythons


def ranged(data: Compatibility, python: str, commit: str | None = None) -> tuple[Finding, ...]:
    pins = pinned()
    pins[2]["commit"] = commit or pins[2]["commit"]
    found = catalog(compatibility=data)
    return in_order(pythons(subject(source_recipe(Options(python=python), found, components=pins), found)))


def rows(*cells: tuple[str, str]) -> Compatibility:
    """Rows of engine 0.11.0 that say (source, Pythons)."""
    value = {
        "sources": {rank: {"what": f"a {rank}", "rank": rank, "date": "2026-01-01"} for rank in ("table", "document")},
        "rows": [{"of": "engine==0.11.0", "fits": {"python": wanted}, "source": rank} for rank, wanted in cells],
    }
    return Compatibility.model_validate(value)


@pytest.mark.parametrize("python", ["3.10", "3.11"])
def test_a_python_in_every_range_has_no_finding(python: str) -> None:
    assert ranged(compatibility(), python) == ()
    assert ranged(rows(("table", ">=3.10,<3.12")), python) == ()


@pytest.mark.parametrize("python", ["3.9", "3.12"])
def test_a_python_outside_a_rows_range_is_refused_with_the_range_and_bases_that_fit(python: str) -> None:
    """V14 (vllm-project/vllm-ascend issue 3657): the package itself sets no upper bound, the makers' table does."""
    (finding,) = ranged(rows(("table", ">=3.10,<3.12")), python)
    assert (finding.severity, finding.code) == (Severity.ERROR, "python-range")
    assert finding.what == f"engine 0.11.0 does not fit Python {python}: it is for Python >=3.10,<3.12"
    assert finding.why == "a table, 2026-01-01"
    assert finding.fix.startswith("bases that fit: 8.5.0-910b-ubuntu22.04-py3.10, 8.5.0-910b-ubuntu22.04-py3.11, ")


def test_a_python_outside_what_a_source_says_of_itself() -> None:
    (finding,) = ranged(compatibility(), "3.11", ENGINE_OLD)
    assert finding.what == "engine 0.10.0 does not fit Python 3.11: it is for Python >=3.9,<3.11"
    assert finding.why == "images/components/engine.yaml: engine's old list"
    assert finding.fix == (
        "bases that fit: 8.5.0-910b-ubuntu22.04-py3.10, 8.3.rc1-910b-ubuntu22.04-py3.10, "
        "8.5.0-910b-openeuler24.03-py3.10, 8.5.0-a3-ubuntu22.04-py3.10, 8.3.rc1-910b-openeuler24.03-py3.10, "
        "8.3.rc1-a3-ubuntu22.04-py3.10, 8.5.0-a3-openeuler24.03-py3.10, 8.3.rc1-a3-openeuler24.03-py3.10"
    )


def test_a_python_that_no_base_has() -> None:
    (finding,) = ranged(rows(("table", ">=3.13")), "3.11")
    assert finding.fix == "no CANN image has such a Python"


def test_a_guide_for_one_python_against_the_packages_own_word_is_a_disagreement() -> None:
    (finding,) = ranged(rows(("document", "3.10")), "3.11")
    assert finding == Finding(
        Severity.WARNING,
        "fit-disagree",
        "sources disagree about the Pythons of engine 0.11.0: 3.10 (a document, 2026-01-01); "
        ">=3.9 (images/components/engine.yaml: engine's list)",
        "the target has Python 3.11",
    )
    assert ranged(rows(("document", "3.10")), "3.10") == ()
    assert [f.code for f in ranged(rows(("document", "3.10"), ("table", ">=3.10")), "3.11")] == ["fit-disagree"]
    assert [f.code for f in ranged(rows(("document", "3.10")), "3.8")] == ["python-range"]


def test_a_wheel_of_the_table_is_judged_by_its_row_alone() -> None:
    data = Compatibility.model_validate(
        {
            "sources": {"table": {"what": "a table", "rank": "table", "date": "2026-01-01"}},
            "rows": [{"of": "torch==2.9.0", "fits": {"python": ">=3.9.2,<3.11"}, "source": "table"}],
        }
    )
    found = catalog(compatibility=data)
    (finding,) = pythons(subject(recipe(found=found), found))
    assert finding.what == "torch 2.9.0 does not fit Python 3.11: it is for Python >=3.9.2,<3.11"
    assert list(pythons(subject(recipe(Options(python="3.9"), found), found))) == []
    assert recipe().target.arch is Arch.AMD64
