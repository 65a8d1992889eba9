"""Rules about components: their order and files, releases and patches of sources, and environment variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.component import System
from cannery.compat.subject import Finding, error, listed, note, warning
from cannery.recipe.environment import PYTHONPATH, REFERENCE, VENV, deciding, expand_env, known_abi, python_home
from cannery.recipe.recipe import package_of, python_folders
from cannery.recipe.select import same_release
from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen, Recipe

MEGATRON = "MEGATRON_LM_PATH"
BEFORE = "${PYTHONPATH}"
VERSIONS = re.compile(r"\d+(?:\.[0-9A-Za-z]+)*")
NAMED = re.compile(r"/atb/cxx_abi_([01])(?![\w.-])")
LISTS = frozenset({"PATH", "LD_LIBRARY_PATH", PYTHONPATH})
WHY = "the base's ENV has it: programs, libraries and modules of CANN and Python are found by it"


def order(subject: Subject) -> Iterator[Finding]:
    """Refuse a component that comes before one in its `after`. A source also needs that component in the profile."""
    places = {chosen.name: place for place, chosen in enumerate(subject.recipe.chosen)}
    for chosen in subject.recipe.chosen:
        for name in chosen.component.after:
            component = subject.catalog.components.get(name)
            # A lock may have it as a requirement of another package. Wheels are installed before sources.
            is_wheel = component is not None and component.kind is ComponentKind.WHEELS
            comes = is_wheel and (subject.lock is None or package_of(name, component) in subject.versions)
            if name in places and places[name] > places[chosen.name]:
                what = f"{name} is below {chosen.name}, which is installed with it in place"
                fix = f"move {name} above {chosen.name}"
            elif name not in places and chosen.component.kind.is_source and not comes:
                what = f"{chosen.name} is installed with {name} in place, and the profile has no {name}"
                fix = f"add {name} above {chosen.name}"
            else:
                continue
            why = f"images/components/{chosen.name}.yaml: after"
            yield error("order", what, why, f"{fix} in {subject.recipe.file}")


def files(subject: Subject) -> Iterator[Finding]:
    """Refuse two components with a link at the same path: the later layer would replace the other link."""
    owners: dict[str, list[str]] = {}
    for chosen in subject.recipe.chosen:
        part = chosen.component
        for path in part.links if isinstance(part, System) else ():
            owners.setdefault(path, []).append(chosen.name)
    for path, names in owners.items():
        if len(names) > 1:
            yield error(
                "files",
                f"{listed(names)} both bring {path}",
                "each is a separate layer, and the last one would hide the path of the others",
                f"take {listed(names, 'or')} out of `components` in {subject.recipe.file}",
            )


def releases(subject: Subject) -> Iterator[Finding]:
    """Report a source that is a release from the package index instead of a commit, since they may differ."""
    for chosen in subject.recipe.sources:
        if chosen.release:
            revisions = chosen.component.revisions
            known = ", ".join(pin for pin, one in revisions.items() if same_release(one.version, chosen.release))
            yield note(
                "release",
                f"{chosen.name} {chosen.release} is a release from the package index, no commit",
                chosen.reason or (chosen.known.note if chosen.known else ""),
                f"known commits of that version: {known}" if known else "",
            )


def patches(subject: Subject) -> Iterator[Finding]:
    """Refuse patches for other commits than those in the set: they would fail or silently change nothing."""
    by_name: dict[str, Chosen] = {chosen.name: chosen for chosen in subject.recipe.chosen}
    # A profile may have the same distribution under another component name.
    by_package = {chosen.package: chosen for chosen in reversed(subject.recipe.sources)}
    patchers = [(chosen, chosen.known) for chosen in subject.recipe.sources if chosen.known]
    for chosen, known in patchers:
        origin = f"images/components/{chosen.name}.yaml: {known.source}"
        for name, commits in known.patches.items():
            package, wanted = package_of(name, subject.catalog.components.get(name)), listed(commits, "or")
            patched = by_name.get(name) or by_package.get(package)
            if patched and patched.commit and patched.commit not in commits:
                yield error(
                    "patches",
                    f"{patched.name} is at commit {patched.commit}, the patches of {chosen.name} are for {wanted}",
                    origin,
                    f"pin {patched.name} to that commit, or take a commit of {chosen.name} that is for this one",
                )
            elif not (patched and patched.commit) and package in subject.versions:
                yield warning(
                    "patches",
                    f"the patches of {chosen.name} are for {name} at commit {wanted}, "
                    f"the set has release {subject.versions[package]}",
                    f"on another tree they fail, or are silently skipped; {origin}",
                    f"take {name} at that commit in {subject.recipe.file}",
                )


def environment(subject: Subject) -> Iterator[Finding]:
    """Check environment variables: the table's rules, the path of Megatron, and PYTHONPATH."""
    env = set_variables(subject.recipe)
    for rule in subject.table.env:
        version = subject.versions.get(rule.beside)
        # Build variables count too: kernels that a build leaves out are missing in the image.
        build = [c.component.build_env for c in subject.recipe.sources if c.package == rule.beside]
        for value in dict.fromkeys(values[rule.variable] for values in (env, *build) if rule.variable in values):
            if version is None:
                continue
            release = Version(version).public
            if rule.value is None:
                is_wrong = release not in VERSIONS.findall(value)
                what = f"{rule.variable}={value} does not name {rule.beside} {release}, which is in the set"
            else:
                is_wrong = re.search(rule.value, value) is not None
                what = f"{rule.variable}={value} beside {rule.beside} {version}"
            if is_wrong:
                fix = f"take {rule.variable} out of {subject.recipe.file} or of the component that sets it"
                yield Finding(rule.severity, "env", what, rule.reason, fix)
    yield from _megatron(env, python_folders(subject.recipe))
    _, found, behind = env.get(PYTHONPATH, "").partition(BEFORE)
    entries = [entry for entry in behind.split(":") if entry]
    if found and entries:
        yield warning(
            "env",
            f"{PYTHONPATH} has {', '.join(entries)} behind what the base sets",
            "a module of the same name in the base would come first (ms-swift pull 9245)",
            f"write it before: {PYTHONPATH}={':'.join(entries)}:{BEFORE}",
        )


def set_variables(recipe: Recipe) -> Mapping[str, str]:
    """Return the variables of components and profile. `${NAME}` is kept if only the base can define NAME."""
    env: dict[str, str] = {}
    for values in (*(chosen.component.env for chosen in recipe.chosen), recipe.profile.env):
        for name, value in values.items():
            env[name] = REFERENCE.sub(lambda match: env.get(match[1], match[0]), value)
    return env


def _megatron(env: Mapping[str, str], trees: tuple[str, ...]) -> Iterator[Finding]:
    """Refuse a MEGATRON_LM_PATH that is not on PYTHONPATH. The image adds the source `trees` after the base's value."""
    value = env.get(PYTHONPATH, BEFORE if trees else "")
    if not value or MEGATRON not in env:
        return
    path = value.replace(BEFORE, ":".join((BEFORE, *trees)))
    if env[MEGATRON].rstrip("/") not in [entry.rstrip("/") for entry in path.split(":")]:
        yield error(
            "env",
            f"{MEGATRON}={env[MEGATRON]} is not in {PYTHONPATH}={path}",
            "two trees of Megatron: Python imports another one than the variable names (ms-swift pull 9245)",
            f"put {env[MEGATRON]} into {PYTHONPATH}, before {BEFORE}",
        )


def atb(subject: Subject) -> Iterator[Finding]:
    """Refuse variables that name the ATB of another C++ ABI, and report an unknown ABI."""
    recipe, found = subject.recipe, subject.recipe.base.found
    chosen, known = deciding(recipe), known_abi(recipe)
    if chosen is None or chosen.component.cxx_abi is None:
        return
    source = f"images/components/{chosen.name}.yaml: {chosen.component.cxx_abi.source}"
    if known is None and found is not None:
        what = f"{chosen.package} {chosen.version or 'without a version'} on {recipe.target.arch}"
        yield note(
            "env",
            f"the C++ ABI of {what} is not known: ATB stays as the base has it, cxx_abi_{found.atb_abi}",
            source,
            "the check import.torch-npu-pair of the image compares it with torch's",
        )
    if known is None:
        return
    for name, value in set_variables(recipe).items():
        others = sorted({abi for abi in NAMED.findall(value) if int(abi) != known})
        if others:
            yield error(
                "env",
                f"{name} names ATB's build cxx_abi_{others[0]}; {chosen.package} {chosen.version} on "
                f"{recipe.target.arch} has the C++ ABI {known}",
                source,
                f"take it out of {recipe.file} or of the component that sets it: the image gets cxx_abi_{known}",
            )


def base_env(subject: Subject) -> Iterator[Finding]:
    """Refuse variables that drop the search paths or locations of the base, and report other changed variables."""
    recipe, found = subject.recipe, subject.recipe.base.found
    # The ENV of the base, if it is known, and the variable that Cannery sets.
    known = found is not None and recipe.target.os in recipe.base.line.env
    base = expand_env(recipe.base.line, recipe.target, recipe.base.tag) if known else {}
    base["VIRTUAL_ENV"] = VENV
    homes = ("/usr/local/Ascend", recipe.base.line.toolkit_home, VENV, *((python_home(found),) if found else ()))
    setters = [(f"component {one.name}", one.component.env) for one in recipe.chosen]
    for who, values in (*setters, (recipe.file, recipe.profile.env)):
        for name, value in values.items():
            yield from _replaced(who, name, value, base, homes)


def _replaced(who: str, name: str, value: str, base: Mapping[str, str], homes: tuple[str, ...]) -> Iterator[Finding]:
    """Check one variable that `who` sets against its value in the base."""
    own, reference = base.get(name), f"${{{name}}}"
    # References to the variable itself, and to variables that only components set, are kept.
    others = {key: text for key, text in base.items() if key != name}
    value = REFERENCE.sub(lambda match: others.get(match[1], match[0]), value)
    entries = (own or "").split(":")
    if name in LISTS or (len(entries) > 1 and all(entry.startswith("/") for entry in entries if entry)):
        if reference not in value.split(":"):
            what = f"{who} sets {name}={value}, without the value of the base"
            yield error("base-env", what, WHY, f"keep it as one entry of the list: {name}=/your/folder:{reference}")
    elif name == "PYTHONHOME":
        what = f"{who} sets {name}={value}: Python looks there for all of its own modules"
        yield error("base-env", what, WHY, f"take {name} out; PYTHONPATH adds a folder of modules")
    elif own is None or value in {own, reference}:
        return
    elif own.startswith(homes):
        what = f"{who} sets {name}={value}; the base has it as {own}"
        yield error("base-env", what, WHY, f"take {name} out; CANN and BASE choose another CANN")
    else:
        yield note("base-env", f"{who} sets {name}={value}; the base has it as {own}", "the image has the new value")


RULES = (atb, base_env, environment, files, order, patches, releases)
