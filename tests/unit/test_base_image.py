"""The base that a build stands on: pinned in what is rendered, compared with what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from factories import catalog, compatibility, plan, recipe

from cannery.base.real import BaseImage, compare
from cannery.engine.oci import ImageConfig
from cannery.plan.make import base_need, on_base, on_labelled_base
from cannery.plan.manifest import labels, manifest, manifest_text
from cannery.recipe.environment import expand_env
from cannery.recipe.recipe import Options
from cannery.util.addresses import BASE_DIGEST, BASE_NAME
from cannery.vocab import Arch, BaseKind, Severity

if TYPE_CHECKING:
    from cannery.compat.subject import Finding
    from cannery.recipe.recipe import Recipe

DIGEST = f"sha256:{'0f' * 32}"
TAG = "8.5.0-910b-ubuntu22.04-py3.11"
FIRST, SECOND = (f"{host}.example/cann:{TAG}" for host in ("registry", "mirror"))
CUSTOM = Options(base="me/cann:1")


def base(found: Recipe, reference: str = FIRST, arch: str = "amd64", **changes: str | None) -> BaseImage:
    """The base as it is recorded; `changes` of its environment, None takes a name away."""
    env = expand_env(found.base.line, found.target, found.base.tag) | changes
    config = ImageConfig(arch, {name: value for name, value in env.items() if value is not None}, {})
    return BaseImage(reference, DIGEST, config)


def codes(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(str(one.severity), one.code) for one in found]


def test_what_is_asked_for() -> None:
    need = base_need(plan(Options(arch="arm64")))
    assert (need.references, need.arch, need.kind) == ((FIRST, SECOND), Arch.ARM64, BaseKind.REAL)
    assert need.arches == (Arch.AMD64, Arch.ARM64)
    assert base_need(plan(Options(arch="arm64")), own_builder=True).arches == (Arch.ARM64,)
    assert base_need(plan()).arches == (Arch.AMD64,)
    assert base_need(plan(CUSTOM)).references == ("me/cann:1",)


def test_a_found_base_is_named_by_digest_and_changes_no_tag() -> None:
    before = plan()
    after = on_base(before, SECOND, DIGEST)
    assert (after.base_reference, after.build_reference) == (f"{SECOND}@{DIGEST}",) * 2
    assert after.references == before.references
    assert after.folder == before.folder
    assert on_base(before, SECOND, None).base_reference == SECOND


def test_the_users_own_digest_stays() -> None:
    mine = plan(Options(base=f"me/cann:1@{DIGEST}"))
    assert mine.base_reference == f"me/cann:1@{DIGEST}"
    assert on_base(mine, "me/cann:1", DIGEST).base_reference == mine.base_reference


@pytest.mark.parametrize("labelled", [True, False])
def test_labels_of_an_image_name_what_its_manifest_was_made_with(labelled: bool) -> None:
    built = on_base(plan(), SECOND, DIGEST)
    labels = {
        "org.opencontainers.image.base.name": SECOND if labelled else f"{SECOND}@{DIGEST}",
        **({"org.opencontainers.image.base.digest": DIGEST} if labelled else {}),
    }
    again = on_labelled_base(plan(), labels)
    assert again == built
    assert manifest_text(again, compatibility()) == manifest_text(built, compatibility())
    assert manifest_text(again, compatibility()) != manifest_text(plan(), compatibility())


def test_labels_that_name_another_base_change_nothing() -> None:
    name = "org.opencontainers.image.base.name"
    for options, there in (
        (None, {}),
        (None, {name: "elsewhere.example/cann:1"}),
        (Options(base="standin"), {name: FIRST}),
    ):
        before = plan(options)
        assert on_labelled_base(before, there) is before


@pytest.mark.parametrize("options", [None, Options(os="openeuler24.03"), Options(arch="arm64")])
def test_the_recorded_base_has_no_findings(options: Options | None) -> None:
    found = recipe(options)
    assert compare(found, base(found, arch=str(found.target.arch))) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/cann-8.5.1"}, [("warning", "base.toolkit")]),
        ({"ASCEND_TOOLKIT_HOME": None}, [("warning", "base.toolkit")]),
        ({"LD_LIBRARY_PATH": "/other"}, [("warning", "base.env")]),
        ({"LD_LIBRARY_PATH": None}, [("warning", "base.env")]),
        ({"NEW": "1"}, []),
        ({"PATH": "/usr/local/python3.11.15/bin:/bin"}, [("error", "base.python"), ("warning", "base.env")]),
        ({"PATH": "/usr/bin"}, [("error", "base.python"), ("warning", "base.env")]),
        ({"PATH": None}, [("error", "base.python"), ("warning", "base.env")]),
    ],
)
def test_differences(changes: dict[str, str | None], expected: list[tuple[str, str]]) -> None:
    for options in (None, CUSTOM):
        found = recipe(options)
        assert codes(compare(found, base(found, "me/cann:1", **changes))) == expected


def test_another_architecture_is_an_error() -> None:
    found = recipe(CUSTOM)
    (finding,) = compare(found, base(found, "me/cann:1", "arm64"))
    assert (finding.severity, finding.code) == (Severity.ERROR, "base.arch")
    assert finding.what == "me/cann:1 is for arm64, the target is amd64"
    assert finding.fix.startswith("ARCH=arm64")


def test_the_abi_of_atb() -> None:
    data = catalog()
    line = data.bases["8.5.0"]
    env = {
        "ubuntu22.04": (*line.env["ubuntu22.04"], "ATB_HOME_PATH=/atb/cxx_abi_{atb_abi}", "ATB_LIB=${ATB_HOME_PATH}")
    }
    found = recipe(None, catalog(bases={"8.5.0": line.model_copy(update={"env": env})}))
    (finding,) = compare(found, base(found, ATB_HOME_PATH="/atb/cxx_abi_0", ATB_LIB="/atb/cxx_abi_0"))
    assert (finding.severity, finding.code) == (Severity.WARNING, "base.atb")
    assert "is /atb/cxx_abi_0 in registry.example/cann" in finding.what
    assert finding.what.endswith("recorded is /atb/cxx_abi_1")
    assert "rewritten in place" in finding.why


def test_the_operating_system_by_its_labels() -> None:
    found = recipe(CUSTOM)
    config = base(found).config
    assert config is not None
    labels = {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "24.04"}
    other = BaseImage("me/cann:1", None, ImageConfig(config.architecture, config.env, labels))
    (finding,) = compare(found, other)
    assert finding.code == "base.os"
    assert finding.what == "the labels of me/cann:1 name ubuntu 24.04, the target is ubuntu22.04"
    # The image's own version, of a maker who overwrote one label and not the other, is no OS.
    mine = {**labels, "org.opencontainers.image.version": "22.04"}
    assert compare(found, BaseImage("me/cann:1", None, ImageConfig(config.architecture, config.env, mine))) == ()


def test_a_configuration_that_cannot_be_read_is_a_warning() -> None:
    (finding,) = compare(recipe(), BaseImage(FIRST, DIGEST, None, unread="time-out"))
    assert codes((finding,)) == [("warning", "base.unread")]
    assert finding.what == f"the configuration of {FIRST} could not be read: time-out"


def test_manifest_and_labels_name_the_base_and_its_digest_apart() -> None:
    made = plan()
    exact = on_base(made, SECOND, DIGEST)
    base = manifest(exact, compatibility())["base"]
    assert (base["reference"], base["digest"]) == (SECOND, DIGEST)
    assert (labels(exact)[BASE_NAME], labels(exact)[BASE_DIGEST]) == (SECOND, DIGEST)
    assert manifest(made, compatibility())["base"]["digest"] is None
    assert BASE_DIGEST not in labels(made)
    assert manifest_text(on_labelled_base(made, labels(exact)), compatibility()) == manifest_text(
        exact, compatibility()
    )
