"""The components of a profile: their order and files, releases and patches of sources, and the environment they set."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from packaging.version import Version

from cannery.catalog.component import System
from cannery.compat.subject import Finding, error, listed, note, warning
from cannery.recipe.environment import PYTHONPATH, REFERENCE, VENV, deciding, expand_env, known_abi, python_home
from cannery.recipe.recipe import package_of, python_folders
from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cannery.catalog.compatibility import EnvRule
    from cannery.compat.subject import Subject
    from cannery.recipe.recipe import Chosen, Recipe

MEGATRON = "MEGATRON_LM_PATH"
BEFORE = "${PYTHONPATH}"
VERSIONS = re.compile(r"\d+(?:\.[0-9A-Za-z]+)*")
NAMED = re.compile(r"/atb/cxx_abi_([01])(?![\w.-])")
LISTS = frozenset({"PATH", "LD_LIBRARY_PATH", PYTHONPATH})
WHY = "the base's ENV has it: programs, libraries and modules of CANN and Python are found by it"


def order(subject: Subject) -> Iterator[Finding]:
    """Refuse a component that is above one that it comes after; a source needs it in the profile at all."""
    places = {chosen.name: place for place, chosen in enumerate(subject.recipe.chosen)}
    for chosen in subject.recipe.chosen:
        for name in chosen.component.after:
            if name not in places:
                if chosen.component.kind.is_source and not _comes_all_the_same(subject, name):
                    yield _finding(
                        subject,
                        chosen,
                        f"{chosen.name} is installed with {name} in place, and the profile has no {name}",
                        f"add {name} above {chosen.name}",
                    )
            elif places[name] > places[chosen.name]:
                yield _finding(
                    subject,
                    chosen,
                    f"{name} is below {chosen.name}, which is installed with it in place",
                    f"move {name} above {chosen.name}",
                )


def _finding(subject: Subject, chosen: Chosen, what: str, fix: str) -> Finding:
    why = f"images/components/{chosen.name}.yaml: after"
    return error("order", what, why, f"{fix} in {subject.recipe.file}")


def _comes_all_the_same(subject: Subject, name: str) -> bool:
    """Whether a lock brings the part as somebody's requirement: wheels come before sources. Without a lock, it may."""
    component = subject.catalog.components.get(name)
    if component is None or component.kind is not ComponentKind.WHEELS:
        return False
    return subject.lock is None or package_of(name, component) in subject.versions


def files(subject: Subject) -> Iterator[Finding]:
    """Refuse two components that bring the same path, as links: the later layer would win."""
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
                "each has a layer of its own, and of the same path the last one would be seen",
                f"take {listed(names, 'or')} out of `components` in {subject.recipe.file}",
            )


def releases(subject: Subject) -> Iterator[Finding]:
    """Report a release from the package index in the place of a commit, since the two may differ."""
    for chosen in subject.recipe.sources:
        if chosen.release:
            known = ", ".join(f"{commit} ({one.version})" for commit, one in chosen.component.revisions.items())
            yield note(
                "release",
                f"{chosen.name} {chosen.release} is a release from the package index, no commit",
                chosen.reason or (chosen.known.note if chosen.known else ""),
                f"commits that are known: {known}" if known else "",
            )


def patches(subject: Subject) -> Iterator[Finding]:
    """Refuse patches for other commits than those of the set: there they fail, or silently change nothing."""
    by_name = {chosen.name: chosen for chosen in subject.recipe.chosen}
    for chosen in subject.recipe.sources:
        for name, commits in (chosen.known.patches if chosen.known else {}).items():
            patched = by_name.get(name) or _same_package(subject, name)
            if patched and patched.commit:
                if patched.commit not in commits:
                    yield error(
                        "patches",
                        f"{patched.name} is at commit {patched.commit}, the patches of {chosen.name} are for "
                        f"{listed(commits, 'or')}",
                        _origin(chosen),
                        f"pin {patched.name} to that commit, or take a commit of {chosen.name} that is for this one",
                    )
            else:
                yield from _on_a_release(subject, chosen, name, commits)


def _on_a_release(subject: Subject, chosen: Chosen, name: str, commits: tuple[str, ...]) -> Iterator[Finding]:
    package = _package(subject, name)
    if package in subject.versions:
        yield warning(
            "patches",
            f"the patches of {chosen.name} are for {name} at commit {listed(commits, 'or')}, "
            f"the set has release {subject.versions[package]}",
            f"on another tree they fail, or are silently skipped; {_origin(chosen)}",
            f"take {name} at that commit in {subject.recipe.file}",
        )


def _same_package(subject: Subject, name: str) -> Chosen | None:
    """Return the component of the profile that brings the same distribution under another name."""
    package = _package(subject, name)
    return next((chosen for chosen in subject.recipe.sources if chosen.package == package), None)


def _package(subject: Subject, name: str) -> str:
    return package_of(name, subject.catalog.components.get(name))


def _origin(chosen: Chosen) -> str:
    return f"images/components/{chosen.name}.yaml: {chosen.known.source if chosen.known else ''}"


def environment(subject: Subject) -> Iterator[Finding]:
    """Hold the table's rules on variables against what profile and components set, and the two names of one tree."""
    env = set_variables(subject.recipe)
    for rule in subject.table.env:
        version = subject.versions.get(rule.beside)
        # What a build gets counts as what is built: kernels that it leaves out are not there.
        build = [c.component.build_env for c in subject.recipe.sources if c.package == rule.beside]
        for value in dict.fromkeys(values[rule.variable] for values in (env, *build) if rule.variable in values):
            what = _contradiction(rule, value, version) if version else ""
            if what:
                fix = f"take {rule.variable} out of {subject.recipe.file} or of the component that sets it"
                yield Finding(rule.severity, "env", what, rule.reason, fix)
    trees = python_folders(subject.recipe)
    yield from _megatron(env, trees)
    yield from _appended(env)


def set_variables(recipe: Recipe) -> Mapping[str, str]:
    """Return what components and profile set, as in the image; `${NAME}` stays where only the base can have set it."""
    env: dict[str, str] = {}
    for values in (*(chosen.component.env for chosen in recipe.chosen), recipe.profile.env):
        for name, value in values.items():
            env[name] = REFERENCE.sub(lambda match: env.get(match[1], match[0]), value)
    return env


def _contradiction(rule: EnvRule, value: str, version: str) -> str:
    if rule.value is not None:
        return f"{rule.variable}={value} beside {rule.beside} {version}" if re.search(rule.value, value) else ""
    public = Version(version).public
    named = public in VERSIONS.findall(value)
    return "" if named else f"{rule.variable}={value} does not name {rule.beside} {public}, which is in the set"


def _megatron(env: Mapping[str, str], trees: tuple[str, ...]) -> Iterator[Finding]:
    """Hold the variable's tree against PYTHONPATH, in which the image has the trees beside what the base has."""
    value = env.get(PYTHONPATH, BEFORE if trees else "")
    if not value or MEGATRON not in env:
        return
    path = value.replace(BEFORE, ":".join((BEFORE, *trees)))
    if _folder(env[MEGATRON]) not in [_folder(entry) for entry in path.split(":")]:
        yield error(
            "env",
            f"{MEGATRON}={env[MEGATRON]} is no entry of {PYTHONPATH}={path}",
            "two trees of Megatron: what is imported is another one than what the variable names (ms-swift pull 9245)",
            f"put {env[MEGATRON]} into {PYTHONPATH}, before {BEFORE}",
        )


def _appended(env: Mapping[str, str]) -> Iterator[Finding]:
    _, found, behind = env.get(PYTHONPATH, "").partition(BEFORE)
    entries = [entry for entry in behind.split(":") if entry]
    if found and entries:
        yield warning(
            "env",
            f"{PYTHONPATH} has {', '.join(entries)} behind what the base sets",
            "a module of the same name in the base would come first (ms-swift pull 9245)",
            f"write it before: {PYTHONPATH}={':'.join(entries)}:{BEFORE}",
        )


def _folder(path: str) -> str:
    return path.rstrip("/")


def atb(subject: Subject) -> Iterator[Finding]:
    """Refuse variables that name ATB of another C++ ABI; report an ABI that is not known."""
    recipe = subject.recipe
    chosen, known = deciding(recipe), known_abi(recipe)
    if chosen is None or chosen.component.cxx_abi is None:
        return
    source = f"images/components/{chosen.name}.yaml: {chosen.component.cxx_abi.source}"
    if known is None:
        yield from _unknown(subject, f"{chosen.package} {chosen.version or 'without a version'}", source)
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


def _unknown(subject: Subject, what: str, source: str) -> Iterator[Finding]:
    found = subject.recipe.base.found
    if found is not None:
        yield note(
            "env",
            f"the C++ ABI of {what} on {subject.recipe.target.arch} is not known: "
            f"ATB stays as the base has it, cxx_abi_{found.atb_abi}",
            source,
            "the check import.torch-npu-pair of the image holds it against torch's",
        )


def base_env(subject: Subject) -> Iterator[Finding]:
    """Refuse a value that hides the base's own lists and places; note another value of the base that is replaced."""
    recipe = subject.recipe
    base = _base_values(recipe)
    homes = _homes(recipe)
    setters = [(f"component {one.name}", one.component.env) for one in recipe.chosen]
    for who, values in (*setters, (recipe.file, recipe.profile.env)):
        for name, value in values.items():
            yield from _held(who, name, REFERENCE.sub(partial(_kept, name, base), value), base.get(name), homes)


def _kept(name: str, base: Mapping[str, str], found: re.Match[str]) -> str:
    """Return what a reference stands for; that to the variable itself stays, as does what only components set."""
    return found[0] if found[1] == name else base.get(found[1], found[0])


def _held(who: str, name: str, value: str, own: str | None, homes: tuple[str, ...]) -> Iterator[Finding]:
    reference = f"${{{name}}}"
    if name in LISTS or (own is not None and _is_list(own)):
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


def _is_list(value: str) -> bool:
    entries = value.split(":")
    return len(entries) > 1 and all(entry.startswith("/") for entry in entries if entry)


def _base_values(recipe: Recipe) -> Mapping[str, str]:
    """Return the base's ENV, as far as it is known, and what Cannery itself sets to places."""
    base = recipe.base
    known = base.found is not None and recipe.target.os in base.line.env
    return {**(expand_env(base.line, recipe.target, base.tag) if known else {}), "VIRTUAL_ENV": VENV}


def _homes(recipe: Recipe) -> tuple[str, ...]:
    found = recipe.base.found
    return ("/usr/local/Ascend", recipe.base.line.toolkit_home, VENV, *((python_home(found),) if found else ()))


RULES = (atb, base_env, environment, files, order, patches, releases)
