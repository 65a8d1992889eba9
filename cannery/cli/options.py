"""The options and arguments of commands: tuples of rows, which `cannery.cli.arguments` combines."""

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
LEVEL_HELP = "run this level only (repeatable; default: all but train, which takes one GRPO step on a tiny model)"
# Removed kinds, and what removes their files now.
GONE_KINDS = {"engine": "in a checkout, `make engine-remove` removes the engine of tools/engine.py"}


class Option(NamedTuple):
    """One option or argument: its names, further arguments of argparse's `add_argument`, and a heading in --help."""

    names: tuple[str, ...]
    about: Mapping[str, Any]
    heading: str = ""


Options = tuple[Option, ...]


def _one(spelt: str, words: str | None = None, **about: Any) -> Option:  # noqa: ANN401 - argparse's
    """Return one option or argument, written as in --help: its names, and its value in capitals (`-e --env NAME`)."""
    names, values = ([one for one in spelt.split() if one.isupper() is is_value] for is_value in (False, True))
    return Option(tuple(names), {"metavar": values[0] if values else None, "help": words, **about})


def _flag(name: str, words: str, dest: str | None = None) -> Option:
    return Option((name,), {"action": "store_true", "help": words, "dest": dest})


def _listed(spelt: str, words: str, dest: str | None = None, choices: tuple[str, ...] | None = None) -> Option:
    """Return an option that may be given several times."""
    return _one(spelt, words, action="append", default=[], dest=dest, choices=choices)


def _below(heading: str, *taken: Option) -> Options:
    """Return options with a heading in --help."""
    return tuple(one._replace(heading=heading) for one in taken)


def add_options(sub: ArgumentParser, taken: Options, helps: Mapping[str, str]) -> None:
    """Add options to the parser of a command; `helps` replaces help texts, by name.

    Options that store constants exclude each other.
    """
    headings = dict.fromkeys(one.heading for one in taken)
    groups = {heading: sub.add_argument_group(heading) if heading else sub for heading in headings}
    either = None
    for names, about, heading in taken:
        group = groups[heading]
        if "const" in about:
            group = either = either or group.add_mutually_exclusive_group()
        group.add_argument(*names, **{**about, "help": helps.get(names[0], about["help"])})


def usage_of(taken: Options) -> str:
    """Return the usage of a command: its arguments and required options."""
    forms = {None: "{0}", "?": "[{0}]", "*": "[{0} ...]", "+": "{0} [{0} ...]"}
    words = [one for one in taken if not one.names[0].startswith("-")]
    named = [forms[one.about.get("nargs")].format(one.about["metavar"] or "SHELL") for one in words]
    needed = [f"{one.names[0]} {one.about['metavar']}" for one in taken if one.about.get("required")]
    return " ".join(["[options]", *named, *needed])


# The options of every command.
COMMON = ("-q", "--quiet", "-v", "--verbose", "--color", "--catalog")


def add_common(sub: ArgumentParser) -> None:
    """Add the options of every command. If -v is the volume option of a command, only --verbose is added."""
    add = sub.add_argument_group("output").add_argument
    has_volume = "-v" in sub._option_string_actions  # noqa: SLF001 - argparse has no other way
    nothing = argparse.SUPPRESS
    add("-q", "--quiet", action="store_true", default=nothing, help="print results and errors only")
    names = ("--verbose",) if has_volume else ("-v", "--verbose")
    words = "also print the output of build steps, and requests to registries"
    add(*names, action="store_true", default=nothing, help=words)
    words = "when to use colours: auto (default: on a terminal, if NO_COLOR is not set), always or never"
    add("--color", choices=("auto", "always", "never"), default=nothing, help=words)
    words = "folder with your own profiles/, components/ and so on, in addition to images/ (default: CANNERY_CATALOG)"
    sub.add_argument("--catalog", metavar="DIR", default=nothing, help=words)


# Parsers of values, for argparse.


def _number(option: str, pattern: str, what: str, hint: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(pattern, text):
            raise UsageError(f"{option}: {text!r} is {what}", hint=hint)
        return int(text)

    return parse


def _age(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,4})([hdw])", text)
    if not found:
        raise UsageError(f"--older-than: {text!r} is not an age", hint="a number of hours, days or weeks: 12h, 7d, 2w")
    return float(found[1]) * {"h": 3600, "d": 86400, "w": 604800}[found[2]]


def _clean_kind(word: str) -> str:
    # `choices` does not work: without a value, argparse checks the empty list.
    if word not in CLEAN_KINDS:
        hint = GONE_KINDS.get(word) or did_you_mean(word, CLEAN_KINDS)
        raise UsageError(f"KIND: {word!r} is not known", hint=hint)
    return word


def _output(text: str) -> str:
    """Return the value of --output. Raises `UsageError` for an invalid one."""
    kind, _, folder = text.partition(":")
    if text in {"docker", "store"} or (kind == "oci" and folder):
        return text
    raise UsageError(f"--output: {text!r} is not a place for an image", hint="docker, store or oci:DIR")


def _file(text: str) -> str:
    """Return the value of --record. Raises `UsageError` for an empty one."""
    if not text:
        raise UsageError("--record: an empty word names no file", hint="for example --record npu.json")
    return text


# Options for a profile, its target, and other versions and files.


def profile(nargs: str | None = None, words: str = "a profile; `list` prints their names") -> Options:
    """Return the argument for a profile, or for as many as argparse's `nargs` allows."""
    return (_one("profile PROFILE", words, nargs=nargs),)


ARCH = "amd64 or arm64 (default: {})"


def _place(otherwise: str, arch: str) -> Options:
    """Return the options for a target without its base. The arguments are texts for the defaults in --help."""
    return (
        _one("--cann VERSION", f"CANN version, for example 8.5.0 or 8.3.rc1 (default: {otherwise})"),
        _one("--chip CHIP", f"910b, a3, 310p, 910 or 950, or a name that npu-smi prints (default: {otherwise})"),
        _one("--os OS", f"operating system, for example ubuntu22.04 or openeuler24.03 (default: {otherwise})"),
        _one("--python X.Y", f"Python version, for example 3.11 (default: {otherwise})"),
        _one("--arch ARCH", ARCH.format(arch)),
    )


place = _below("target", *_place("any", "any"))
BASE = "base image: standin, a tag of a CANN image, or an image reference (default: the profile's)"
target = _below("target", *_place("the profile's", "this host's"), _one("--base BASE", BASE))
OWN_WHEELS = "folder with your own wheels, which is searched before any index"
wheelhouse = _below("versions and sources", _one("--wheelhouse DIR", OWN_WHEELS))
RELEASES = "release: use releases from the package index instead of git commits; release:NAME,NAME: only for these"
FORCE = "continue despite errors that check reports; the image's tag then ends with -forced"
versions = _below(
    "versions and sources",
    _listed("--pin NAME==VERSION", "use this version instead of the profile's, for this run (repeatable)"),
    _one("--sources WHICH", RELEASES),
    _flag("--force", FORCE),
)
MIRROR = "take git repositories from this folder instead of the network"
git_mirror = _below("versions and sources", _one("--git-mirror DIR", MIRROR))
own_trees = _below("versions and sources", _listed("--src NAME=DIR", "use your own tree of a source (repeatable)"))
SETS = "folder with your own patch sets: <repo>/<commit>/*.patch"
patch_sets = _below("versions and sources", _one("--patches DIR", SETS))
sources = (*git_mirror, *patch_sets, *own_trees)

# Options for the output.
as_json = (_flag("--json", "print JSON"),)
settings = (_flag("--settings", "show the settings of this machine, and where each was read, instead of a profile"),)
every_note = (_flag("--all", "print every note of a long list"),)
document = (_one("--output FILE", "file to write (default: standard output)"),)
older = (_one("--against OLD", "also report what changed since OLD: anything that `diff` takes"),)
shell = (_one("shell", "bash or zsh", choices=("bash", "zsh")),)


def form(first: str, *others: str) -> Options:
    """Return the option --format with its choices; the first one is the default."""
    words = f"output format: {', '.join((f'{first} (default)', *others[:-1]))} or {others[-1]}"
    return (_one("--format", words, choices=(first, *others), default=first),)


SIDE = "a profile, REVISION:PROFILE of this checkout, a lock file, a manifest.json, or an image on this host"
two_sides = (_one("old OLD", SIDE), _one("new NEW", "what to compare it with: one of the same kinds"))

# Options for writing into the catalog.
new_profile = (
    _one("--like PROFILE", "profile to copy", required=True),
    _one("--summary TEXT", "one line that describes the new profile"),
)
IMAGES = "a CANN image of this version (all tags of the version are read), or a folder with <tag>/Dockerfile in it"
new_base = (_one("line LINE", "CANN version, for example 9.2.0"), _one("source SOURCE", IMAGES))
PLACES = "file to read requirements from, for example setup.py (repeatable; default: those of the newest entry)"
fact = (
    _one("fact NAME==WHAT", "a component, and a version on the package index or a full commit hash"),
    _flag("--print", "print the entry instead of writing it", dest="print_only"),
    _listed("--from PLACE", PLACES, dest="places"),
    _listed("--without GLOB", "leave out requirements on packages that match, for example 'nvidia-*' (repeatable)"),
    _one("--as-version VERSION", "for a commit: the version that the package has at it"),
)
proof_file = (_one("file FILE", "file that `verify --record` wrote"),)

# Patch sets.
one_repo = (_one("repo REPO", "show the patches of this source only", nargs="?"),)
repo = (_one("repo REPO", "a source component, or the name of its package"),)
port = (
    *repo,
    _one("start FROM", "commit that the set was made for"),
    _one("to TO", "commit to try it on"),
    _one("--output DIR", "folder of patch sets to write it to, if all of it applies"),
)
new_set = (
    *repo,
    _one("--tree DIR", "working tree with your changes since HEAD"),
    _one("--output DIR", "folder of patch sets to write it to (default: images/patches)"),
)

# Options for building, verifying and moving an image.
folder = (_one("--output DIR", "folder to write (default: out/<profile>-<target>)"),)
LOCKED = "exit with code 3 if the lock is missing a hash, instead of taking it from the index (default if CI is set)"
locked = _below("build", _one("--locked", LOCKED, action=argparse.BooleanOptionalAction))
WAYS = "who makes layers of wheels: assemble (this host), bake (BuildKit), auto (default: this host if it can)"
build = _below(
    "build",
    _flag("--no-verify", "do not verify the image"),
    _flag("--no-cache", "make every layer again, without the build cache"),
    _flag("--no-stamp", "check and build even if nothing has changed since the last run"),
    _one("--builder NAME", "build with this buildx builder and load the image from it (real bases only)"),
    _one("--cache REF", "read BuildKit's cache from this reference in a registry, and write it there"),
    _one("--with", WAYS, choices=("auto", "assemble", "bake"), dest="way", default="auto"),
    _flag("--reuse", "pull the image from REGISTRY if it is there, and build it otherwise"),
)
again = _below("verify", _flag("--verify-again", "run verify even if this image has already passed"))
REQUIRE_NPU = "exit with code 4 if the NPU checks cannot run, instead of skipping them"
proof = _below("verify", _flag("--require-npu", REQUIRE_NPU))
AGAINST = "compare an image that was made by hand with PROFILE, or with the nearest profile"
RECORD = "write a proof to FILE: the results, without names of the host (needs NPUs, and --level npu or train)"
verified = _below(
    "verify",
    _one("--image REF", "verify this image instead of the profile's"),
    _one("--against IMAGE", AGAINST),
    _flag("--all", "print every check, as -v does (default: failures, warnings and one line for each level)"),
    _listed("--level", LEVEL_HELP, choices=LEVELS),
    _one("--record FILE", RECORD, type=_file),
)
LESSER = {"unverified": "was not verified", "partial": "was verified by its files alone"}
MOVED = "push an image that {what}; its tag then ends with -{word}, and no moving tag is set"
lesser = _below(
    "registry",
    *(
        _one(f"--{word}", MOVED.format(word=word, what=of), action="store_const", dest="proof", const=word, default="")
        for word, of in LESSER.items()
    ),
)
WHERE = "docker (default if an engine is running), store (Cannery's image store) or oci:DIR (an OCI image layout)"
several = _below(
    "build",
    _one("--output WHERE", f"where to put the image: {WHERE}", type=_output),
    _flag("--push", "push the image to REGISTRY after verify has passed"),
    _flag("--keep-going", "with several images: continue with the others if one fails"),
)
REGISTRY = "HOST/PATH/<profile>:<tag>"
registry = _below("registry", _one("--registry HOST/PATH", f"registry of the images: {REGISTRY}"))
ATTACHED = "attach bill of materials (CycloneDX, SPDX) and provenance; the registry must accept OCI manifests"
SIGNED = "sign with cosign: KEY is what `cosign --key` takes, or keyless; further words in it are options of cosign"
trusted = _below("registry", _flag("--attach", ATTACHED), _one("--sign KEY", SIGNED))
index_folder = (_one("--output DIR", "folder to write index.json and index.html to (default: out/index)"),)
wanted = (
    _one(
        "requirements REQUIREMENT", "package that the image contains, for example 'vllm>=0.20' (in quotes)", nargs="*"
    ),
    _one("--index FILE", "search this index.json instead of REGISTRY"),
)
archive = (_one("--output FILE", "file to write, for example q.tar; q.tar.json will describe it"),)
SINCE = "write only the layers that OLD does not have; OLD is a bundle, its .tar.json, or an image on this host"
since = (_one("--since OLD", SINCE),)
archive_to_load = (
    _one("file FILE", "file that bundle or save wrote; its FILE.json must be beside it"),
    _flag("--force", "load it without FILE.json, or for another architecture"),
)
kept = (
    _one("kinds KIND", f"what to remove (default: nothing): {', '.join(CLEAN_KINDS)}", nargs="*", type=_clean_kind),
    _one(
        "--older-than AGE",
        "remove only what is older: for example 12h, 7d or 2w (hours, days, weeks)",
        type=_age,
        default=0.0,
    ),
    _one(
        "--keep N",
        "keep the newest N of each kind",
        type=_number("--keep", r"[0-9]{1,4}", "not a number", "0 to 9999"),
        default=0,
    ),
)

# Containers and hosts.
NETWORK = "host: the host's network, for jobs on several hosts; none: no network (default: its own network)"
container = _below(
    "container",
    _one(
        "--npus CARDS", "cards to use: numbers such as 0,1,4-7; all (default); or none (default for a stand-in image)"
    ),
    _one(
        "--runtime", "let the Ascend Docker Runtime add the cards, instead of single device nodes", choices=("ascend",)
    ),
    _one("--network", NETWORK, choices=("host", "none")),
    _one("--interface NAME", "with --network host: network interface for HCCL and gloo"),
    _listed("-v --volume SRC:DST", "mount a folder, as docker run does (repeatable)"),
    _listed("-e --env NAME[=VALUE]", "set a variable, as docker run does (repeatable)"),
    _flag("--no-caches", "do not mount your caches of models (huggingface, modelscope)"),
    _one("--name", "name of the container"),
    _one("--workdir DIR", "working directory in the container (default: the image's)"),
    _one("--user UID[:GID]", "user and group, by number (default: the image's)"),
)
command_in_container = _below(
    "start or print",
    _flag("--detach", "run in the background, and print the container's id"),
    _flag(
        "--print", "start nothing; print the command or file, for a host that has all devices of the chip", dest="show"
    ),
    _one("--format", "format of --print (default: docker)", choices=tuple(form.value for form in RunFormat)),
    _one(
        "--nodes N",
        "number of nodes of the RayCluster (default: 1)",
        type=_number("--nodes", r"[1-9][0-9]{0,3}", "not a number of nodes", "1 to 9999"),
    ),
)
own_command = (
    _one("text COMMAND", "a docker run command as one argument, or - to read it from standard input", nargs="?"),
    _one("--file FILE", "a compose file, manifest or workflow, instead of a command (repeatable)", action="append"),
    _one("--chip CHIP", "chip of the host that will run it"),
    _one("--arch ARCH", "CPU architecture of that host"),
)
host = (
    _one("--root DIR", "check a tree copied from another host, instead of this host"),
    _one("--user USER", "user who will use the NPUs, by name or number (default: you)"),
)
