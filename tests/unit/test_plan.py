from __future__ import annotations

from dataclasses import replace

import pytest
from factories import catalog, compatibility, components, inputs, lock, package, plan, profile, recipe

from cannery.errors import FindingsError
from cannery.plan import LayerKind, Plan, parse_tag
from cannery.plan.make import make_plan, package_family
from cannery.recipe.recipe import Base, Options, with_arch
from cannery.vocab import Arch, BaseKind


def digests(made: Plan) -> dict[str, str]:
    return {layer.name: layer.digest for layer in made.layers}


def changed(before: Plan, after: Plan) -> set[str]:
    old, new = digests(before), digests(after)
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def with_packages(*changes: object) -> Plan:
    found = recipe()
    locks = {}
    for arch in Arch:
        whole = lock(found, arch)
        byname = {p.name: p for p in whole.packages} | {p.name: p for p in changes}  # type: ignore[attr-defined]
        locks[arch] = replace(whole, packages=tuple(byname[name] for name in sorted(byname)))
    return make_plan(found, inputs(found, locks=locks))


def test_layers_in_order() -> None:
    kinds = [layer.kind for layer in plan().layers]
    assert kinds == [
        LayerKind.SYSTEM,
        LayerKind.VENV,
        LayerKind.BUILT,
        *[LayerKind.GROUP] * 5,
        LayerKind.LINKS,
        LayerKind.FILES,
    ]
    assert len(kinds) <= 40


def test_layers_count_their_packages_and_bytes() -> None:
    made = plan()
    assert sum(layer.packages for layer in made.layers) == len(made.lock.packages)
    assert sum(layer.wheel_bytes for layer in made.layers) == sum(p.size for p in made.lock.packages)


def test_both_arches_share_a_tag_and_nothing_else_does() -> None:
    amd, arm = plan(), plan(Options(arch="arm64"))
    assert amd.reference == arm.reference
    others = [
        plan(Options(chip="a3")),
        plan(Options(os="openeuler24.03")),
        plan(Options(cann="8.3.rc1")),
        plan(Options(base="standin")),
        plan(Options(base="me/cann:1")),
        plan(Options(pins=("ray==2.51.0",))),
        plan(templates={"tools/common/stage.py": "others"}),
        plan(forced=("fit",)),
        with_packages(package("sympy", "1.15", size=6_299_353, via=("torch",))),
    ]
    assert len({made.digest for made in (amd, *others)}) == 1 + len(others)


def test_the_tag_says_what_the_image_is() -> None:
    tag = parse_tag(str(plan(Options(base="standin"), forced=("x",)).tag))
    assert (tag.standin, tag.custom, tag.forced, len(tag.plan)) == (True, False, True, 12)
    assert parse_tag(str(plan(Options(base="me/cann:1")).tag)).custom
    assert plan().alias == "stack:8.5.0-910b-ubuntu22.04-py3.11"
    assert plan().references == (plan().reference, plan().alias)
    trial = plan(Options(pins=("ray==2.51.0",)))
    assert trial.references == (trial.reference,), "a trial does not take the moving tag"
    assert str(trial.tag).endswith(f"-{trial.digest}-trial")
    assert (trial.alias, trial.folder) == (plan().alias, plan().folder)


def test_a_pin_that_changes_nothing_does_not_take_the_tag_of_the_locked_set() -> None:
    trial = plan(Options(pins=("torch==2.9.0",)))
    assert trial.digest == plan().digest
    assert trial.reference == f"{plan().reference}-trial"


def test_the_same_inputs_give_the_same_plan() -> None:
    assert plan() == plan()


def test_words_for_people_do_not_change_the_image() -> None:
    before = recipe()
    after = recipe(found=catalog(profiles={"stack": profile(documents=["other"])}))
    assert make_plan(before, inputs(before)).digest == make_plan(after, inputs(after)).digest


def test_a_changed_pin_changes_its_own_layer_and_the_manifest() -> None:
    newer = package("ray", "2.51.0", size=70_000_000)
    assert changed(plan(), with_packages(newer)) == {"ray", "files"}


def test_a_changed_environment_changes_the_login_shells_file_and_the_manifest() -> None:
    found = recipe(found=catalog(profiles={"stack": profile(env={"A": "b"})}))
    assert changed(plan(), make_plan(found, inputs(found))) == {"system", "files"}


def test_another_python_changes_every_layer_of_packages() -> None:
    other = plan(Options(python="3.10"))
    kept = [n for n, d in digests(plan()).items() if digests(other)[n] == d]
    assert not set(kept) & {"torch-deps", "ray", "venv"}


@pytest.mark.parametrize(
    ("template", "layers"),
    [
        ("rootfs/opt/cannery/verify.py", set()),
        ("rootfs/opt/cannery/verifying/checks.py", set()),
        ("tools/system.sh", {"system"}),
        ("tools/common/stage.py", {"venv", "torch-deps", "torch", "numpy", "torch-npu", "ray", "built", "links"}),
    ],
)
def test_a_changed_template_changes_the_layers_that_it_makes(template: str, layers: set[str]) -> None:
    # `files` always: the manifest carries the plan's digest, of which every template is part.
    assert changed(plan(templates={template: "1"}), plan(templates={template: "2"})) == layers | {"files"}


def test_build_tools_matter_to_what_they_build_only() -> None:
    found = recipe()
    mine = inputs(found)
    others = tuple(
        replace(p, version="80.1", sha256="0" * 64) if p.name == "setuptools" else p for p in mine.tools.packages
    )
    after = make_plan(found, replace(mine, tools=replace(mine.tools, packages=others)))
    assert changed(plan(), after) == {"built"}


@pytest.mark.parametrize("arch", [*Arch])
def test_hashes_of_a_lock_change_no_tag_but_its_versions_and_indexes_do(arch: Arch) -> None:
    found = recipe()
    whole = {one: lock(found, one) for one in Arch}

    def tag(**changes: object) -> str:
        packages = tuple(replace(p, **changes) if p.name == "torch" else p for p in whole[arch].packages)
        made = make_plan(found, inputs(found, locks={**whole, arch: replace(whole[arch], packages=packages)}))
        return str(made.tag)

    same = tag()
    assert tag(sha256="", file="", size=0) == same
    assert tag(sha256="0" * 64) == same
    assert tag(version="2.9.1+cpu") != same
    assert tag(index="default") != same


def test_the_tag_follows_what_the_manifest_has_of_the_table_and_nothing_else_of_it() -> None:
    found = recipe()
    table = compatibility()

    def tag(**changes: object) -> str:
        return str(make_plan(found, inputs(found, table=table.model_copy(update=changes))).tag)

    own, *others = table.rows
    assert own.version == "2.9.0"  # that of the lock
    same = tag()
    assert tag(rows=(own, *others[1:]), env=(), compatible=()) == same
    assert tag(rows=tuple(others)) != same
    assert tag(deny=()) != same
    assert tag(exclusive=()) != same


def test_a_mirror_of_the_bases_registry_changes_no_tag_and_a_base_of_ones_own_does() -> None:
    found = recipe()

    def tag(base: Base) -> str:
        return str(make_plan(replace(found, base=base), inputs(found)).tag)

    mirror = replace(found.base, references=("mirror.example/cann:8.5.0-910b-ubuntu22.04-py3.11",))
    assert tag(mirror) == tag(found.base)
    own = [replace(found.base, kind=BaseKind.CUSTOM, references=(f"own.example/{name}",)) for name in "ab"]
    assert tag(own[0]) != tag(own[1])


def test_hashes_change_no_tag() -> None:
    found = recipe()
    made = make_plan(found, inputs(found))
    torch = tuple(replace(p, sha256="0" * 64) if p.name == "torch" else p for p in lock(found).packages)
    locks = {**inputs(found).locks, Arch.AMD64: replace(lock(found), packages=torch)}
    assert make_plan(found, inputs(found, locks=locks)).digest == made.digest


def test_stages_of_a_stand_in_run_in_the_build_hosts_own() -> None:
    made = plan(Options(base="standin", arch="arm64"))
    assert made.base_reference.startswith("cannery-standin:8.5.0-910b-ubuntu22.04-py3.11-arm64-")
    assert made.build_reference.startswith("cannery-standin:8.5.0-910b-ubuntu22.04-py3.11-amd64-")
    same = plan(Options(base="standin"))
    assert same.base_reference == same.build_reference


def test_a_stand_in_for_another_arch_needs_the_build_hosts_lock_and_says_so() -> None:
    found = with_arch(recipe(Options(base="standin")), Arch.ARM64)
    with pytest.raises(FindingsError, match="amd64"):
        make_plan(found, inputs(found, locks={Arch.ARM64: lock(found)}))


def test_a_real_base_is_taken_from_the_first_repository() -> None:
    made = plan()
    assert made.base_reference == "registry.example/cann:8.5.0-910b-ubuntu22.04-py3.11"


@pytest.mark.parametrize(
    ("os", "family", "packages", "target"),
    [
        ("ubuntu22.04", "apt", ("libjemalloc2", "libnuma1"), "/usr/lib/aarch64/libj.so.2"),
        ("openeuler24.03", "dnf", ("jemalloc",), "/usr/lib64/libj.so.2"),
    ],
)
def test_system_packages_and_links_follow_os_and_arch(
    os: str, family: str, packages: tuple[str, ...], target: str
) -> None:
    made = plan(Options(os=os, arch="arm64"))
    assert package_family(made.recipe) == family
    assert package_family(plan(Options(os=os, base="standin")).recipe) == "apt", "the stand-in is Debian"
    assert made.system_packages == packages
    assert [(link.path, link.target) for link in made.links] == [("/usr/local/lib/libjemalloc.so.2", target)]


def test_without_links_there_is_no_layer_of_them() -> None:
    names = [{"name": "torch-npu", "version": "2.9.0"}]
    found = recipe(found=catalog(profiles={"stack": profile(components=names)}, components=components()))
    assert "links" not in digests(make_plan(found, inputs(found)))


def test_the_epoch_is_the_profiles_date_in_utc() -> None:
    assert plan().epoch == 1_767_312_000
