"""The options and words that commands take: tuples of rows, which `cannery.cli.arguments` puts together."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from cannery.errors import UsageError
from cannery.vocab import CLEAN_KINDS, RunFormat, did_you_mean

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Mapping

# The verify script's levels (docs/verify-report.schema.json).
LEVELS = ("static", "import", "npu", "train")
LEVEL_HELP = "only this level, repeatable (default: all but train, which takes one step of GRPO on a tiny model)"
# Kinds that were, and what removes them now.
GONE_KINDS = {"engine": "in a checkout, `make engine-remove` removes the engine of tools/engine.py"}


class Option(NamedTuple):
    """One option or word: its names, and the other arguments of argparse's `add_argument`."""

    names: tuple[str, ...]
    about: Mapping[str, Any]


Options = tuple[Option, ...]


def _one(spelt: str, words: str | None = None, **about: Any) -> Option:  # noqa: ANN401 - argparse's
    """Return one option or word, spelt as --help has it: its names, and its value in capitals (`-e --env NAME`)."""
    names, values = ([one for one in spelt.split() if one.isupper() is is_value] for is_value in (False, True))
    return Option(tuple(names), {"metavar": values[0] if values else None, "help": words, **about})


def _switch(name: str, words: str, dest: str | None = None) -> Option:
    return Option((name,), {"action": "store_true", "help": words, "dest": dest})


def _listed(spelt: str, words: str, dest: str | None = None, choices: tuple[str, ...] | None = None) -> Option:
    """Return an option that may be given several times."""
    return _one(spelt, words, action="append", default=[], dest=dest, choices=choices)


def add_options(sub: ArgumentParser, taken: Options, helps: Mapping[str, str]) -> None:
    """Add options to the parser of a command; `helps` has other help texts than theirs, by name.

    Of those that are constants of one value, one alone can be given.
    """
    either = sub.add_mutually_exclusive_group() if any("const" in one.about for one in taken) else sub
    for names, about in taken:
        group = either if "const" in about else sub
        group.add_argument(*names, **{**about, "help": helps.get(names[0], about["help"])})


# What every command takes.
COMMON = ("-q", "--quiet", "-v", "--verbose", "--color", "--catalog")


def add_common(sub: ArgumentParser) -> None:
    """Take how much is printed, and the user's catalog. -v is the volume of a command that has one."""
    add = sub.add_argument_group("output").add_argument
    has_volume = "-v" in sub._option_string_actions  # noqa: SLF001 - argparse has no other way
    nothing = argparse.SUPPRESS
    add("-q", "--quiet", action="store_true", default=nothing, help="print results and errors only")
    names = ("--verbose",) if has_volume else ("-v", "--verbose")
    words = "also print what build steps print, and requests to registries"
    add(*names, action="store_true", default=nothing, help=words)
    words = "colours: auto (a terminal, and NO_COLOR is not set), always, never"
    add("--color", choices=("auto", "always", "never"), default=nothing, help=words)
    words = "a folder of your profiles/, components/ …, laid over images/ (default: CANNERY_CATALOG)"
    sub.add_argument("--catalog", metavar="DIR", default=nothing, help=words)


# Values: each function returns what argparse makes of a text.


def _number(option: str, pattern: str, what: str, hint: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(pattern, text):
            raise UsageError(f"{option}: {text!r} is {what}", hint=hint)
        return int(text)

    return parse


def _age(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,4})([hdw])", text)
    if not found:
        raise UsageError(f"--older-than: {text!r} is no age", hint="a number of hours, days or weeks: 12h, 7d, 2w")
    return float(found[1]) * {"h": 3600, "d": 86400, "w": 604800}[found[2]]


def _clean_kind(word: str) -> str:
    # Not `choices`: with none given, argparse holds the empty list against them.
    if word not in CLEAN_KINDS:
        hint = GONE_KINDS.get(word) or did_you_mean(word, CLEAN_KINDS)
        raise UsageError(f"KIND: {word!r} is not known", hint=hint)
    return word


def _output(text: str) -> str:
    """Return WHERE of --output. Raises `UsageError` for anything else."""
    kind, _, folder = text.partition(":")
    if text in {"docker", "store"} or (kind == "oci" and folder):
        return text
    raise UsageError(f"--output: {text!r} is no place for an image", hint="docker, store or oci:DIR")


def _file(text: str) -> str:
    """Return FILE of --record. Raises `UsageError` for an empty word, which asks for no file."""
    if not text:
        raise UsageError("--record: an empty word names no file", hint="for example --record npu.json")
    return text


# What a command is about: a profile, its target, and other versions and files than its own.


def profile(nargs: str | None = None, words: str = "a profile") -> Options:
    """Return what takes profiles: one, or as many as argparse's `nargs` allows."""
    return (_one("profile PROFILE", words, nargs=nargs),)


ARCH = "amd64 or arm64 (default: {})"
place = (
    _one("--cann VERSION", "CANN line, as 8.5.0 or 8.3.rc1"),
    _one("--chip CHIP", "910b a3 310p 910 950, or a name that npu-smi prints"),
    _one("--os OS", "as ubuntu22.04, openeuler24.03"),
    _one("--python X.Y", 'as "3.11"'),
    _one("--arch ARCH", ARCH.format("this host's")),
)
target = (*place, _one("--base BASE", "standin, a tag of images/bases, or a full image reference"))
wheelhouse = (_one("--wheelhouse DIR", "a folder of your wheels, searched before any index"),)
RELEASES = "release: releases of the package index in place of git commits; release:NAME,NAME of these alone"
FORCE = "continue in spite of findings; stamped into manifest, tag and labels"
versions = (
    _listed("--pin NAME==VERSION", "another version, this time (repeatable)"),
    _one("--sources WHICH", RELEASES),
    _switch("--force", FORCE),
)
git_mirror = (_one("--git-mirror DIR", "a folder of git repositories of yours, in place of the network"),)
own_trees = (_listed("--src NAME=DIR", "your own tree of a source (repeatable)"),)
patch_sets = (_one("--patches DIR", "a folder of patch sets of yours, <repo>/<commit>/*.patch"),)
sources = (*git_mirror, *patch_sets, *own_trees)

# What is printed.
as_json = (_switch("--json", "print JSON"),)
settings = (
    _switch("--settings", "the settings of this machine in place of a profile: each value, and where it was read"),
)
every_note = (_switch("--all", "print every note of a long list"),)
document = (_one("--output FILE", "file to write (default: standard output; of HTML: in out/reports)"),)
older = (_one("--against OLD", "what differs from it, which is given as to diff"),)
shell = (_one("shell", choices=("bash", "zsh")),)


def form(first: str, *others: str) -> Options:
    """Return what takes --format, one of some words; the first is the default."""
    words = f"{first} (default) or {' or '.join(others)}"
    return (_one("--format", words, choices=(first, *others), default=first),)


SIDE = "a profile, REVISION:PROFILE of this checkout, a lock, a manifest.json, or an image on this host"
two_sides = (_one("old OLD", SIDE), _one("new NEW", "the same, to compare with it"))

# What is written into the catalog.
new_profile = (
    _one("--like PROFILE", "the profile whose file it is a copy of", required=True),
    _one("--summary TEXT", "what it is, in a line"),
)
IMAGES = "an image reference with a CANN tag (all its tags are read), or a folder with <tag>/Dockerfile in it"
new_base = (_one("line LINE", "the CANN version, as 9.2.0"), _one("source SOURCE", IMAGES))
PLACES = "a file that lists what it asks for, as requirements.txt or setup.py (repeatable; default: as known)"
fact = (
    _one("fact NAME==WHAT", "a component, and its version on the package index or a full commit"),
    _switch("--print", "print the entry, and write nothing", dest="print_only"),
    _listed("--from PLACE", PLACES, dest="places"),
    _listed("--without GLOB", "leave out packages that another build of it asks for, as 'nvidia-*' (repeatable)"),
    _one("--as-version VERSION", "of a commit: what the distribution calls itself there"),
)
proof_file = (_one("file FILE", "what verify --record wrote"),)

# Patch sets.
one_repo = (_one("repo REPO", "the patches of this source alone", nargs="?"),)
repo = (_one("repo REPO", "a source component, or its distribution"),)
port = (
    *repo,
    _one("start FROM", "the commit that the set is for"),
    _one("to TO", "the commit to try it on"),
    _one("--output DIR", "a folder of sets that it is written to where all of it applies"),
)
new_set = (
    *repo,
    _one("--tree DIR", "the working tree whose changes since HEAD it is made of"),
    _one("--output DIR", "the folder of sets that it is written to (default: images/patches)"),
)

# How an image is built and verified, and where it goes.
folder = (_one("--output DIR", "folder to write (default: out/<profile>-<target>)"),)
LOCKED = "take no hash from an index that the lock is missing: exit 3 (default where CI is set)"
locked = (_one("--locked", LOCKED, action=argparse.BooleanOptionalAction),)
WAYS = "auto (default), assemble (this host makes what needs no system) or bake (BuildKit makes every layer)"
build = (
    _switch("--no-verify", "build only"),
    _switch("--no-cache", "build every stage again"),
    _switch("--no-stamp", "look at everything again, even where nothing has changed"),
    _one("--builder NAME", "a buildx builder of yours (real bases only); the image is loaded back"),
    _one("--cache REF", "BuildKit's cache: read from REF in a registry, and written there"),
    _one("--with", f"who makes the layers: {WAYS}", choices=("auto", "assemble", "bake"), dest="way", default="auto"),
    _switch("--reuse", "pull the prebuilt image from REGISTRY where it is there, else build"),
)
proof = (
    _switch("--verify-again", "run verify even when this very image has passed"),
    _switch("--require-npu", "an NPU level that cannot run is exit 4, not a skip"),
)
AGAINST = "an image of yours, as docker commit makes one: how it differs from PROFILE, or which profile is nearest"
RECORD = "with --level npu or train, on a host with NPUs: write what was found, and nothing that names the host"
verified = (
    _one("--image REF", "another image than the profile's"),
    _one("--against IMAGE", AGAINST),
    _switch("--all", "print every check, as -v does too (default: failures, warnings and a line a level)"),
    _listed("--level", LEVEL_HELP, choices=LEVELS),
    _one("--record FILE", RECORD, type=_file),
)
LESSER = {"unverified": "that verify has not run on", "partial": "verified by its files alone"}
MOVED = "an image {what}, whose tag ends with -{word}; no moving tag follows"
lesser = tuple(
    _one(f"--{word}", MOVED.format(word=word, what=what), action="store_const", dest="proof", const=word, default="")
    for word, what in LESSER.items()
)
WHERE = "docker (default where an engine answers), store (Cannery's own, without an engine) or oci:DIR (a layout)"
several = (
    _one("--output WHERE", f"where the image goes: {WHERE}", type=_output),
    _switch("--push", "push it to REGISTRY when verify has passed"),
    _switch("--keep-going", "of several images, go on with the others where one fails"),
)
REGISTRY = "HOST/PATH/<profile>:<tag>"
registry = (_one("--registry HOST/PATH", f"where images are: {REGISTRY}"),)
ATTACHED = "attach its bill of materials (CycloneDX, SPDX) and provenance to it, in a registry that takes OCI manifests"
SIGNED = "sign it by cosign, and what is attached: a key as cosign takes it, or keyless; cosign's options behind it"
trusted = (_switch("--attach", ATTACHED), _one("--sign KEY", SIGNED))
index_folder = (_one("--output DIR", "folder to write index.json and index.html to (default: out/index)"),)
wanted = (
    _one("requirements REQUIREMENT", "what it holds, as 'vllm>=0.20' in quotes", nargs="*"),
    _one("--index FILE", "an index.json (default: read REGISTRY)"),
)
archive = (_one("--output FILE", "file to write, FILE.tar; FILE.tar.json beside it describes it"),)
since = (_one("--since OLD", "only the layers that are not in OLD: a bundle, a side file, or an image on this host"),)
archive_to_load = (
    _one("file FILE", "what bundle or save wrote, with its FILE.json beside it"),
    _switch("--force", "without a side file, or for another architecture"),
)
kept = (
    _one("kinds KIND", f"what to remove: {' '.join(CLEAN_KINDS)}", nargs="*", type=_clean_kind),
    _one("--older-than AGE", "only what is older, for example 7d, 12h, 2w", type=_age, default=0.0),
    _one(
        "--keep N",
        "leave the newest N of each kind",
        type=_number("--keep", r"[0-9]{1,4}", "no number", "0 to 9999"),
        default=0,
    ),
)

# Containers and hosts.
container = (
    _one("--npus CARDS", "cards, as 0,1,4-7, all (the default: all present), or none"),
    _one("--runtime", "let the Ascend Docker runtime bring them, in place of single device nodes", choices=("ascend",)),
    _one("--network", "host: for jobs on several hosts (default: a network of its own)", choices=("host", "none")),
    _one("--interface NAME", "with --network host: the interface that HCCL and gloo use"),
    _listed("-v --volume SRC:DST", "as docker's -v (repeatable)"),
    _listed("-e --env NAME[=VALUE]", "as docker's -e (repeatable)"),
    _switch("--no-caches", "without your caches of models (huggingface, modelscope)"),
    _one("--name", "name of the container"),
    _one("--workdir DIR", "the folder that its command starts in (default: the image's)"),
    _one("--user UID[:GID]", "as docker's --user, by number (default: whom the image runs as)"),
)
command_in_container = (
    _switch("--detach", "in the background; prints the container's id"),
    _switch("--print", "print what starts it with the chip's full model", dest="show"),
    _one("--format", "what --print prints (default: docker)", choices=tuple(form.value for form in RunFormat)),
    _one(
        "--nodes N",
        "nodes of the RayCluster (default: 1)",
        type=_number("--nodes", r"[1-9][0-9]{0,3}", "no number of nodes", "1 to 9999"),
    ),
)
own_command = (
    _one("text COMMAND", "the docker run line, as one argument; - reads standard input", nargs="?"),
    _one("--file FILE", "a compose file, manifest or workflow, not a command; repeatable", action="append"),
    _one("--chip CHIP", "the chip of the host that is to run it"),
    _one("--arch ARCH", "the CPU architecture of that host"),
)
host = (
    _one("--root DIR", "a tree copied from another host, in place of this one"),
    _one("--user USER", "who uses the NPUs, by name or number (default: who runs this)"),
)
