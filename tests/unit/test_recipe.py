from __future__ import annotations

import pytest
from factories import catalog, components, profile, recipe
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from pydantic import ValidationError

from cannery.catalog.component import parse_component
from cannery.errors import FindingsError, UsageError
from cannery.lock.request import lock_request, set_aside, tools_request
from cannery.recipe.recipe import Options, Recipe, with_arch
from cannery.recipe.select import find_profile, parse_pin, select
from cannery.vocab import Arch, BaseKind, Chip


def test_the_profile_decides_what_the_user_leaves_open() -> None:
    target = recipe().target
    assert str(target) == "8.5.0-910b-ubuntu22.04-py3.11-amd64"
    assert recipe(host=Arch.ARM64).target.arch is Arch.ARM64


def test_a_host_that_the_profile_is_not_made_for_gets_the_profiles_first_arch() -> None:
    target = {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11", "arch": ["arm64"]}
    found = catalog(profiles={"stack": profile(target=target)})
    assert recipe(found=found, host=Arch.AMD64).target.arch is Arch.ARM64


def test_the_users_words_win() -> None:
    options = Options(cann="8.3.RC1", chip="A3", os="openEuler24.03", python="3.10", arch="aarch64")
    assert str(recipe(options).target) == "8.3.rc1-a3-openeuler24.03-py3.10-arm64"
    assert recipe(options).target.chip is Chip.A3


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no profile 'stak'") as caught:
        find_profile(catalog(), "stak")
    assert caught.value.hint == "did you mean stack?"


@pytest.mark.parametrize(
    ("options", "error", "what", "hint"),
    [
        (Options(chip="x9"), UsageError, "CHIP", "known"),
        (Options(cann="8.0.0"), FindingsError, "no facts about CANN 8.0.0", "8.3.rc1, 8.5.0"),
        (Options(base="standin", python="3.10"), FindingsError, "only Python 3.11", "PYTHON=3.11"),
        (Options(base="stadnin"), UsageError, "BASE: 'stadnin'", "standin"),
        (Options(base="me/Cann:1"), UsageError, "'me/Cann:1' is not an image reference", "lower case"),
        (Options(base="8.5.0-a3-ubuntu22.04-py3.11"), UsageError, "is not a base of target", "CHIP"),
        (Options(base="https://host/repo"), UsageError, "BASE: an image reference has no scheme", "docker login"),
        (Options(base="http://u:s3cr3t@host/repo"), UsageError, "has no scheme (https://) and no cred", "docker login"),
        (Options(base="host/x:1?token=s3cr3t"), UsageError, "BASE: an image reference has no query", "docker login"),
        (Options(base="u:s3cr3t@host/repo"), UsageError, "BASE: it has credentials in it", "docker login"),
    ],
)
def test_a_target_that_there_is_not(options: Options, error: type[UsageError], what: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        recipe(options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "kind", "references"),
    [
        (
            None,
            BaseKind.REAL,
            tuple(f"{r}.example/cann:8.5.0-910b-ubuntu22.04-py3.11" for r in ("registry", "mirror")),
        ),
        ("standin", BaseKind.STANDIN, ()),
        ("me/cann:mine", BaseKind.CUSTOM, ("me/cann:mine",)),
        (f"cann@sha256:{'0' * 64}", BaseKind.CUSTOM, (f"cann@sha256:{'0' * 64}",)),
    ],
)
def test_bases(base: str | None, kind: BaseKind, references: tuple[str, ...]) -> None:
    found = recipe(Options(base=base)).base
    assert (found.kind, found.references) == (kind, references)


@pytest.mark.parametrize(
    ("base", "hint"),
    [("standing", "did you mean standin?"), ("foo", "standin, a tag of images/bases (as 8.5.0-910b-")],
)
def test_a_word_that_is_no_base(base: str, hint: str) -> None:
    with pytest.raises(UsageError, match="is not known") as caught:
        recipe(Options(base=base))
    assert caught.value.hint.startswith(hint)


def test_the_targets_own_tag_is_a_base() -> None:
    assert recipe(Options(base="8.5.0-910b-ubuntu22.04-py3.11")).base.kind is BaseKind.REAL


@pytest.mark.parametrize("text", ["ray==2.60.0", "Ray==2.60", "torch_npu==2.9.0.post1", "a.b==1!2.0+local"])
def test_a_pin(text: str) -> None:
    name, version = parse_pin(text)
    assert name == text.split("==", maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")
    assert version == text.split("==")[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ray",
        "ray=2",
        "ray>=2",
        "ray==",
        "ray==2.*",
        "ray===2.0",
        "ray==2,<3",
        "ray[x]==2",
        "ray==2;a",
        "ray @ file:x",
    ],
)
def test_a_malformed_pin_shows_how(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME==VERSION") as caught:
        parse_pin(text)
    assert "--pin ray==" in caught.value.hint


@given(st.text(max_size=20))
def test_any_text_is_a_pin_or_refused(text: str) -> None:
    try:
        name, version = parse_pin(text)
    except UsageError:
        return
    assert parse_pin(f"{name}=={version}") == (name, version)


def test_pins_change_components_and_add_locked_packages() -> None:
    found = recipe(Options(pins=("torch_npu==2.8.0", "numpy==2.2.0")))
    assert {c.package: c.version for c in found.wheels}["torch-npu"] == "2.8.0"
    assert found.pins == ("numpy==2.2.0", "torch-npu==2.8.0")
    assert not found.is_standard
    assert "numpy==2.2.0" in lock_request(found).requirements


@pytest.mark.parametrize(
    ("pins", "what", "hint"),
    [
        (("rya==1",), "--pin: rya is not a package of this profile", "ray"),
        (("jemalloc==5",), "jemalloc is not a package", ""),
        (("ray==1", "Ray==2"), "pinned twice, to 1 and 2", ""),
    ],
)
def test_a_pin_of_what_is_not_there(pins: tuple[str, ...], what: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe(Options(pins=pins))
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_the_request_says_everything_that_matters() -> None:
    request = lock_request(recipe())
    assert request.requirements == ("attrs", "numpy", "ray[default]", "torch-npu==2.9.0", "torch==2.9.0+cpu")
    assert request.bindings == (("torch", "torch-cpu"), ("torchvision", "torch-cpu"))
    assert [(s.name, s.version, s.requires) for s in request.stand_ins] == [("torch", "2.9.0", ("sympy",))]
    assert request.exclude_newer == "2026-01-02"


def excepted(version: str, below: str = "<2.9.1") -> Recipe:
    """The made-up stack with torch at `version`, which on arm64 the default index has up to a bound."""
    parts = components()
    torch = parse_component({**parts["torch"].model_dump(), "index_except": {"arm64": below}})
    pins = [{"name": "torch", "version": version}, {"name": "torch-npu", "version": "2.9.0"}]
    found = catalog(profiles={"stack": profile(components=pins)}, components={**parts, "torch": torch})
    return recipe(found=found)


@pytest.mark.parametrize(
    ("version", "arch", "asked", "index"),
    [
        ("2.9.0", Arch.AMD64, "torch==2.9.0+cpu", "torch-cpu"),
        ("2.9.0", Arch.ARM64, "torch==2.9.0", None),
        ("2.9.0.post1", Arch.ARM64, "torch==2.9.0.post1", None),
        ("2.9.0rc1", Arch.ARM64, "torch==2.9.0rc1", None),
        ("2.9.1", Arch.ARM64, "torch==2.9.1+cpu", "torch-cpu"),
        # A build that the pin itself names is no exception.
        ("2.9.0+cpu", Arch.ARM64, "torch==2.9.0+cpu", "torch-cpu"),
    ],
)
def test_an_arch_takes_some_versions_from_the_default_index(
    version: str, arch: Arch, asked: str, index: str | None
) -> None:
    bound = with_arch(excepted(version), arch)
    request = lock_request(bound)
    assert asked in request.requirements
    # What torch binds follows it, wherever it goes.
    assert request.bindings == ((("torch", index), ("torchvision", index)) if index else ())
    assert {(c.name, c.index) for c in bound.wheels} == {("torch", index), ("torch-npu", None)}


def test_what_comes_from_the_default_index_has_no_stand_in() -> None:
    assert [s.version for s in lock_request(excepted("2.9.0")).stand_ins] == ["2.9.0"]
    assert lock_request(with_arch(excepted("2.9.0"), Arch.ARM64)).stand_ins == ()


def test_a_recipe_is_the_same_chosen_or_bound_again_for_an_arch() -> None:
    there = with_arch(excepted("2.9.0"), Arch.ARM64)
    assert with_arch(there, Arch.AMD64) == excepted("2.9.0")
    assert recipe(Options(arch="arm64")) == with_arch(recipe(), Arch.ARM64)


def test_an_exception_needs_an_index() -> None:
    value = {"kind": "wheels", "summary": "tensors", "index_except": {"arm64": "<2.9"}}
    assert parse_component({**value, "index": "torch-cpu"})
    with pytest.raises(ValidationError):
        parse_component(value)
    with pytest.raises(ValidationError):
        parse_component({**value, "kind": "system", "index": "torch-cpu"})


def test_what_a_component_pins_cann_does_not_ask_for_again() -> None:
    names = [{"name": "torch-npu", "version": "2.9.0"}, {"name": "numpy", "version": "1.26.4"}]
    parts = {**components(), "numpy": components()["torch-npu"].model_copy()}
    found = recipe(found=catalog(profiles={"stack": profile(components=names)}, components=parts))
    assert lock_request(found).requirements == ("attrs", "numpy==1.26.4", "torch-npu==2.9.0")


def test_an_override_gives_way_to_a_pin_by_hand() -> None:
    override = {"requirement": "torch==2.8.0", "reason": "the stack pins it"}
    found = catalog(profiles={"stack": profile(overrides=[override])})
    assert lock_request(recipe(found=found)).overrides == ("torch==2.8.0",)
    assert lock_request(recipe(Options(pins=("torch==2.9.1",)), found)).overrides == ()


def test_force_overrides_what_packages_ask() -> None:
    request = lock_request(recipe(Options(pins=("torch-npu==2.8.0",), force=True)))
    assert set(request.overrides) == {"torch==2.9.0+cpu", "torch-npu==2.8.0"}


def test_os_and_chip_do_not_change_what_is_asked() -> None:
    plain = lock_request(recipe())
    assert lock_request(recipe(Options(chip="a3", os="openeuler24.03"))) == plain
    assert lock_request(with_arch(recipe(), Arch.ARM64)).digest != plain.digest


def test_every_requirement_is_one() -> None:
    for text in lock_request(recipe(Options(pins=("numpy==2.2.0",), force=True))).requirements:
        assert Requirement(text).name


def test_build_tools_are_asked_for_like_a_profile() -> None:
    request = tools_request(catalog(), "3.11", Arch.ARM64)
    assert (request.profile, request.requirements) == ("_tools", ("setuptools", "uv==0.9.0"))


def test_pins_are_in_normal_form_whatever_their_order() -> None:
    one = recipe(Options(pins=("ray==2.0", "numpy==1.0")))
    two = select(catalog(), "stack", Options(pins=("NumPy==1.0", "Ray==2.0", "ray==2.0")), Arch.AMD64, ["numpy"])
    assert one == two


@pytest.mark.parametrize(
    ("pin", "aside"),
    [("torch==2.8.0", False), ("torch==2.8.0+cpu", False), ("torch==2.9.0", True), ("a==1", False)],
)
def test_a_pin_sets_an_override_aside_where_it_says_otherwise(pin: str, aside: bool) -> None:
    assert set_aside("Torch==2.8.0", (pin,)) is aside
