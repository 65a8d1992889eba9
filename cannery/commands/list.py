"""`list` and `show` print the catalog, and `completion` prints a script for shells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cannery.catalog.catalog import further_pythons
from cannery.catalog.compatibility import DRIVER
from cannery.catalog.component import FromSource
from cannery.catalog.target import without_build
from cannery.commands import options_of, print_json, print_result
from cannery.commands.proofs import proved
from cannery.errors import ExitCode, UsageError
from cannery.util.addresses import shown
from cannery.vocab import ComponentKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from cannery.catalog.catalog import Catalog, Profile
    from cannery.context import Context
    from cannery.recipe.recipe import Recipe


def list_profiles(_arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print every profile with its target and summary."""
    catalog = context.catalog()
    profiles = dict(sorted(catalog.profiles.items(), key=lambda item: (item[1].replaced is not None, item[1].place)))
    if context.is_json:
        rows = [
            {
                "name": n,
                "summary": p.summary,
                "target": _target(p),
                "pythons": _pythons(p, catalog),
                "substitutes": [one.model_dump() for one in p.substitutes],
                "replaced": p.replaced and p.replaced.model_dump(mode="json"),
                "proof": proved(context, catalog, n),
            }
            for n, p in profiles.items()
        ]
        print_json(rows)
        return ExitCode.DONE
    width = max(map(len, profiles))
    for name, profile in profiles.items():
        target = _target(profile)
        where = f"CANN {target['cann']}, {target['chip']}, {target['os']}, Python {target['python']}"
        print(f"{name:<{width}}  {profile.summary}")
        print(f"{'':<{width}}  {where}, {' '.join(target['arch'])}; base {profile.base}")
        print(f"{'':<{width}}  proof: {proved(context, catalog, name)}")
        for other in _pythons(profile, catalog):
            words = f"OS={other['os']} " if other["os"] not in {"", profile.target.os} else ""
            print(f"{'':<{width}}  also {words}PYTHON={other['python']}")
        for one in profile.substitutes:
            python = catalog.standin.python
            print(f"{'':<{width}}  BASE=standin PYTHON={python} has {one.name} {one.version}: {one.reason}")
        if profile.replaced:
            print(f"{'':<{width}}  documented {profile.replaced.date}; replaced by {profile.replaced.by}")
    return ExitCode.DONE


def show(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print one profile, or the settings of this machine."""
    if arguments.settings:
        return _show_settings(context)
    if arguments.profile is None:
        hint = "build.py show quickstart, or show --settings for the settings of this machine"
        raise UsageError("PROFILE is missing", hint=hint)
    return show_profile(arguments, context)


def show_profile(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print one profile: components with pin, source and reason, bounds, driver and shared memory."""
    from cannery.recipe.select import select

    catalog = context.catalog()
    recipe = select(catalog, arguments.profile, options_of(arguments), context.arch)
    profile = recipe.profile
    rows: list[dict[str, Any]] = [
        {
            "name": c.name,
            "kind": str(c.component.kind),
            "pin": c.full_version or "",
            "index": c.index or ("default" if c.component.kind == "wheels" or c.release else ""),
            "commit": c.commit or "",
            "release": c.release or "",
            "hosts": dict(c.component.hosts) if isinstance(c.component, FromSource) and not c.release else {},
            "asks": list(c.known.requires) if c.known else [],
            "reason": c.reason,
            "summary": c.component.summary,
        }
        for c in recipe.chosen
    ]
    if context.is_json:
        value = {"name": arguments.profile, "profile": profile.model_dump(mode="json"), "components": rows}
        value["proof"] = proved(context, catalog, arguments.profile)
        print_json(value)
        return ExitCode.DONE
    print(f"{arguments.profile}: {profile.summary}")
    print(f"target: {recipe.target}, base {profile.base}, packages as of {profile.exclude_newer}")
    print(f"proof: {proved(context, catalog, arguments.profile)}")
    for document in profile.documents:
        print(f"document: {document}")
    if recipe.changes:
        print(f"with {recipe.changes}")
    width = max(len(str(row["name"])) for row in rows)
    indent = " " * (width + 4)
    for row in rows:
        is_system = row["kind"] == ComponentKind.SYSTEM
        pin = f"== {row['pin']}" if row["pin"] else "of the base's OS" if is_system else "locked"
        index = f", index {row['index']}" if row["index"] else ""
        if row["commit"]:
            hosts = " ".join(f"{host}:{repository}" for host, repository in row["hosts"].items())
            index += f", {hosts} at {row['commit']}"
        print(f"  {row['name']:<{width}}  {pin:<16} {row['kind']}{index}: {row['summary']}")
        if row["asks"]:
            print(f"{indent}asks for: {', '.join(row['asks'])}")
        if row["reason"]:
            print(f"  {'':<{width}}  because: {row['reason']}")
    print("\n".join(_last_lines(recipe, catalog)))
    return ExitCode.DONE


def _last_lines(recipe: Recipe, catalog: Catalog) -> Iterator[str]:
    """Yield the lines after the components: bounds, substitutes, the required driver, shared memory."""
    from cannery.compat.rules.target import asking, who
    from cannery.compat.subject import Subject

    profile = recipe.profile
    for title in ("constraints", "overrides", "excludes"):
        for item in getattr(profile, title):
            yield f"{title.removesuffix('s')}: {item.requirement} because {item.reason}"
    for one in recipe.substitutes:
        yield f"substitute: {one.name} {one.version} because {one.reason}"
    if drivers := asking(Subject(recipe, catalog, {})):
        yield f"driver: {drivers[0].fits[DRIVER]} or newer, which {who(drivers)} asks for"
    yield f"shared memory: {profile.shm_size}"


def _show_settings(context: Context) -> ExitCode:
    """Print each setting of this machine: its value without credentials, and where it was read."""
    context.catalog()  # a mirror for an unknown index or host is an error
    rows = [*context.settings.rows(str(context.cache)), *_host_rows(context)]
    values = [{"name": name, "value": value, "from": origin} for name, value, origin in rows]
    one, two = (max(len(row[column]) for row in rows) for column in (0, 1))
    print_result(context, values, (f"{name:<{one}}  {value:<{two}}  {origin}".rstrip() for name, value, origin in rows))
    return ExitCode.DONE


def _host_rows(context: Context) -> Iterator[tuple[str, str, str]]:
    """Yield the settings of other programs on this host, in the same form."""
    pip, of_pip = context.pip, "pip's settings"
    yield "pip index-url", shown(pip.index_url), of_pip
    yield "pip extra-index-url", " ".join(map(shown, pip.extra_index_urls)), of_pip
    yield "pip find-links", " ".join(map(shown, pip.find_links)), f"{of_pip}, and wheelhouse"
    yield "pip proxy", shown(pip.proxy), of_pip
    yield "pip cert", pip.cert, of_pip
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        found = next((one for one in (name, name.upper()) if context.env.get(one)), "")
        yield name, shown(context.env.get(found, "")), found or "not set"
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "BUILDX_BUILDER"):
        if context.env.get(name):
            yield name, shown(context.env[name]), "the environment"


def _pythons(profile: Profile, catalog: Catalog) -> list[dict[str, str]]:
    """Return the further Pythons of a profile, each with the OS of its base image."""
    line = catalog.bases[without_build(profile.target.cann)]
    return [{"python": python, "os": os} for python, os in further_pythons(profile, line)]


def _target(profile: Profile) -> dict[str, Any]:
    # For `model_dump`, pydantic would build a serializer, which takes longer than the rest of the command.
    target = profile.target
    return {"cann": target.cann, "chip": target.chip, "os": target.os, "python": target.python, "arch": target.arch}


PROFILES = "_cannery_profiles"


def completion(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Print a completion script for bash or zsh, made from the parser and the catalog's profiles."""
    import shtab

    names = " ".join(sorted(context.catalog().profiles))
    for action in _profiles(arguments.parser):
        action.complete = {"bash": PROFILES, "zsh": f"({names})"}  # type: ignore[attr-defined] # shtab's own
    preamble = f'{PROFILES}() {{ compgen -W "{names}" -- "$1"; }}\n' if arguments.shell == "bash" else ""
    print(shtab.complete(arguments.parser, shell=arguments.shell, preamble=preamble))
    return ExitCode.DONE


def _profiles(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the profile arguments of all commands and actions."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way
        if action.dest == "profile":
            yield action
        for sub in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _profiles(sub)


COMMANDS = {"list": list_profiles, "show": show, "completion": completion}
