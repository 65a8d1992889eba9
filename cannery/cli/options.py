"""Options of the commands, in groups: each adds what it takes to the parser of a command."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from cannery.errors import UsageError
from cannery.vocab import CLEAN_KINDS, RunFormat, did_you_mean

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable

    Options = Callable[[ArgumentParser], None]

# The verify script's levels (docs/verify-report.schema.json).
LEVELS = ("static", "import", "npu", "train")
LEVEL_HELP = "only this level, repeatable (default: all but train, which takes one step of GRPO on a tiny model)"
# Kinds that were, and what removes them now.
GONE_KINDS = {"engine": "in a checkout, `make engine-remove` removes the engine of tools/engine.py"}


def _one(*names: str, **about: Any) -> Options:  # noqa: ANN401 - argparse's
    """Return what takes one option or word, by the arguments of argparse's `add_argument`."""

    def add(sub: ArgumentParser) -> None:
        sub.add_argument(*names, **about)

    return add


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise UsageError(f"--nodes: {text!r} is no number of nodes", hint="1 to 9999")
    return int(text)


def _clean_kind(word: str) -> str:
    # Not `choices`: with none given, argparse holds the empty list against them.
    if word not in CLEAN_KINDS:
        hint = GONE_KINDS.get(word) or did_you_mean(word, CLEAN_KINDS)
        raise UsageError(f"KIND: {word!r} is not known", hint=hint)
    return word


# What every command takes.
COMMON = ("-q", "--quiet", "-v", "--verbose", "--color", "--catalog")


def common(sub: ArgumentParser) -> None:
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


as_json = _one("--json", action="store_true", help="print JSON")


settings = _one(
    "--settings",
    action="store_true",
    help="the settings of this machine in place of a profile: each value, and where it was read",
)


def whole_list(words: str) -> Options:
    """Return what takes --all, which shows all of a list that is folded otherwise: `words` say which."""
    return _one("--all", action="store_true", help=words)


def profile(nargs: str | None = None, words: str = "a profile") -> Options:
    """Return what takes profiles: one, or as many as argparse's `nargs` allows."""
    return _one("profile", nargs=nargs, metavar="PROFILE", help=words)


def target(sub: ArgumentParser) -> None:
    """Take what an image is for: CANN, chip, system, Python, architecture, base."""
    place(sub)
    sub.add_argument("--base", metavar="BASE", help="standin, a tag of images/bases, or a full image reference")


def place(sub: ArgumentParser) -> None:
    """Take what an image is for but its base."""
    add = sub.add_argument
    add("--cann", metavar="VERSION", help="CANN line, as 8.5.0 or 8.3.rc1")
    add("--chip", metavar="CHIP", help="910b a3 310p 910 950, or a name that npu-smi prints")
    add("--os", metavar="OS", help="as ubuntu22.04, openeuler24.03")
    add("--python", metavar="X.Y", help='as "3.11"')
    arch = {"lock": "every one of the profile", "search": "any"}.get(sub.prog.rpartition(" ")[2], "this host's")
    add("--arch", metavar="ARCH", help=f"amd64 or arm64 (default: {arch})")


wheelhouse = _one("--wheelhouse", metavar="DIR", help="a folder of your wheels, searched before any index")


def versions(sub: ArgumentParser) -> None:
    """Take other versions than the profile's, and --force."""
    add = sub.add_argument
    add("--pin", metavar="NAME==VERSION", action="append", default=[], help="another version, this time (repeatable)")
    words = "release: releases of the package index in place of git commits; release:NAME,NAME of these alone"
    add("--sources", metavar="WHICH", help=words)
    more = "; replace another image under a pushed tag" if sub.prog.endswith(" push") else ""
    words = f"continue in spite of findings; stamped into manifest, tag and labels{more}"
    add("--force", action="store_true", help=words)


git_mirror = _one("--git-mirror", metavar="DIR", help="a folder of git repositories of yours, in place of the network")
own_trees = _one(
    "--src", metavar="NAME=DIR", action="append", default=[], help="your own tree of a source (repeatable)"
)
patch_sets = _one("--patches", metavar="DIR", help="a folder of patch sets of yours, <repo>/<commit>/*.patch")


def sources(sub: ArgumentParser) -> None:
    """Take where sources and their patches come from."""
    git_mirror(sub)
    patch_sets(sub)
    own_trees(sub)


def new_profile(sub: ArgumentParser) -> None:
    """Take what a new profile is like."""
    sub.add_argument("--like", metavar="PROFILE", required=True, help="the profile whose file it is a copy of")
    sub.add_argument("--summary", metavar="TEXT", help="what it is, in a line")


def new_base(sub: ArgumentParser) -> None:
    """Take a CANN version, and what is read of it."""
    sub.add_argument("line", metavar="LINE", help="the CANN version, as 9.2.0")
    words = "an image reference with a CANN tag (all its tags are read), or a folder with <tag>/Dockerfile in it"
    sub.add_argument("source", metavar="SOURCE", help=words)


def fact(sub: ArgumentParser) -> None:
    """Take the release or commit whose facts are read, and where in it they are."""
    add = sub.add_argument
    add("fact", metavar="NAME==WHAT", help="a component, and its version on the package index or a full commit")
    add("--print", action="store_true", dest="print_only", help="print the entry, and write nothing")
    words = "a file that lists what it asks for, as requirements.txt or setup.py (repeatable; default: as known)"
    add("--from", metavar="PLACE", action="append", default=[], dest="places", help=words)
    words = "leave out packages that another build of it asks for, as 'nvidia-*' (repeatable)"
    add("--without", metavar="GLOB", action="append", default=[], help=words)
    add("--as-version", metavar="VERSION", help="of a commit: what the distribution calls itself there")


folder = _one("--output", metavar="DIR", help="folder to write (default: out/<profile>-<target>)")
locked = _one(
    "--locked",
    action=argparse.BooleanOptionalAction,
    help="take no hash from an index that the lock is missing: exit 3 (default where CI is set)",
)


def proof(sub: ArgumentParser) -> None:
    """Take how a built image is verified."""
    add = sub.add_argument
    add("--verify-again", action="store_true", help="run verify even when this very image has passed")
    add("--require-npu", action="store_true", help="an NPU level that cannot run is exit 4, not a skip")


def build(sub: ArgumentParser) -> None:
    """Take how an image is built."""
    add = sub.add_argument
    add("--no-verify", action="store_true", help="build only")
    add("--no-cache", action="store_true", help="build every stage again")
    add("--no-stamp", action="store_true", help="look at everything again, even where nothing has changed")
    add("--builder", metavar="NAME", help="a buildx builder of yours (real bases only); the image is loaded back")
    add("--cache", metavar="REF", help="BuildKit's cache: read from REF in a registry, and written there")
    ways = "auto (default), assemble (this host makes what needs no system) or bake (BuildKit makes every layer)"
    add(
        "--with", dest="way", choices=("auto", "assemble", "bake"), default="auto", help=f"who makes the layers: {ways}"
    )
    add("--reuse", action="store_true", help="pull the prebuilt image from REGISTRY where it is there, else build")


def lesser(sub: ArgumentParser) -> None:
    """Take which image without a whole proof is moved."""
    either = sub.add_mutually_exclusive_group()
    for proof, what in (("unverified", "that verify has not run on"), ("partial", "verified by its files alone")):
        words = f"an image {what}, whose tag ends with -{proof}; no moving tag follows"
        either.add_argument(f"--{proof}", dest="proof", action="store_const", const=proof, default="", help=words)


def several(sub: ArgumentParser) -> None:
    """Take what becomes of images, and of the others where one fails."""
    add = sub.add_argument
    words = "docker (default where an engine answers), store (Cannery's own, without an engine) or oci:DIR (a layout)"
    add("--output", metavar="WHERE", type=_output, help=f"where the image goes: {words}")
    add("--push", action="store_true", help="push it to REGISTRY when verify has passed")
    add("--keep-going", action="store_true", help="of several images, go on with the others where one fails")


def _output(text: str) -> str:
    """Return WHERE of --output. Raises `UsageError` for anything else."""
    kind, _, folder = text.partition(":")
    if text in {"docker", "store"} or (kind == "oci" and folder):
        return text
    raise UsageError(f"--output: {text!r} is no place for an image", hint="docker, store or oci:DIR")


def verified(sub: ArgumentParser) -> None:
    """Take what `verify` looks at."""
    add = sub.add_argument
    add("--image", metavar="REF", help="another image than the profile's")
    words = "an image of yours, as docker commit makes one: how it differs from PROFILE, or which profile is nearest"
    add("--against", metavar="IMAGE", help=words)
    words = "print every check, as -v does too (default: failures, warnings and a line a level)"
    add("--all", action="store_true", help=words)
    add("--level", action="append", choices=LEVELS, default=[], help=LEVEL_HELP)
    words = "with --level npu or train, on a host with NPUs: write what was found, and nothing that names the host"
    add("--record", metavar="FILE", type=_file, help=words)


def _file(text: str) -> str:
    """Return FILE of --record. Raises `UsageError` for an empty word, which asks for no file."""
    if not text:
        raise UsageError("--record: an empty word names no file", hint="for example --record npu.json")
    return text


proof_file = _one("file", metavar="FILE", help="what verify --record wrote")
one_repo = _one("repo", nargs="?", metavar="REPO", help="the patches of this source alone")


def port(sub: ArgumentParser) -> None:
    """Take a set, what it is tried on, and where it is written to."""
    add = sub.add_argument
    add("repo", metavar="REPO", help="a source component, or its distribution")
    add("start", metavar="FROM", help="the commit that the set is for")
    add("to", metavar="TO", help="the commit to try it on")
    add("--output", metavar="DIR", help="a folder of sets that it is written to where all of it applies")


def new_set(sub: ArgumentParser) -> None:
    """Take what a set is made of, and where it is written to."""
    add = sub.add_argument
    add("repo", metavar="REPO", help="a source component, or its distribution")
    add("--tree", metavar="DIR", help="the working tree whose changes since HEAD it is made of")
    add("--output", metavar="DIR", help="the folder of sets that it is written to (default: images/patches)")
    sub.usage = f"{sub.prog} [options] REPO --tree DIR"


def container(sub: ArgumentParser) -> None:
    """Take what a container has: cards, network, mounts, variables."""
    add = sub.add_argument
    add("--npus", metavar="CARDS", help="cards, as 0,1,4-7, all (the default: all present), or none")
    words = "let the Ascend Docker runtime bring them, in place of single device nodes"
    add("--runtime", choices=("ascend",), help=words)
    add("--network", choices=("host", "none"), help="host: for jobs on several hosts (default: a network of its own)")
    words = "with --network host: the interface that HCCL and gloo use"
    add("--interface", metavar="NAME", help=words)
    add("-v", "--volume", action="append", default=[], metavar="SRC:DST", help="as docker's -v (repeatable)")
    add("-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="as docker's -e (repeatable)")
    add("--no-caches", action="store_true", help="without your caches of models (huggingface, modelscope)")
    add("--name", help="name of the container")
    add("--workdir", metavar="DIR", help="the folder that its command starts in (default: the image's)")
    add("--user", metavar="UID[:GID]", help="as docker's --user, by number (default: whom the image runs as)")


def command_in_container(sub: ArgumentParser) -> None:
    """Take a command behind `--`, and how it is started or printed."""
    add = sub.add_argument
    sub.usage = f"{sub.prog} [options] PROFILE [-- COMMAND ...]"
    add("--detach", action="store_true", help="in the background; prints the container's id")
    add("--print", action="store_true", dest="show", help="print what starts it with the chip's full model")
    words = "what --print prints (default: docker)"
    add("--format", choices=[form.value for form in RunFormat], help=words)
    add("--nodes", type=_count, metavar="N", help="nodes of the RayCluster (default: 1)")


def shell_in_container(sub: ArgumentParser) -> None:
    """Take a command behind `--` in place of a shell: it is started here and at once."""
    sub.usage = f"{sub.prog} [options] PROFILE [-- COMMAND ...]"
    sub.set_defaults(show=False, format=None, nodes=None, detach=False, registry=None)


def own_command(sub: ArgumentParser) -> None:
    """Take a command of the user's, or a compose file, and what is to run it."""
    add = sub.add_argument
    add("text", nargs="?", metavar="COMMAND", help="the docker run line, as one argument; - reads standard input")
    add(
        "--file",
        action="append",
        metavar="FILE",
        help="a compose file, manifest or workflow, not a command; repeatable",
    )
    add("--chip", metavar="CHIP", help="the chip of the host that is to run it")
    add("--arch", metavar="ARCH", help="the CPU architecture of that host")


def host(sub: ArgumentParser) -> None:
    """Take another host than this one, and another user."""
    sub.add_argument("--root", metavar="DIR", help="a tree copied from another host, in place of this one")
    sub.add_argument("--user", metavar="USER", help="who uses the NPUs, by name or number (default: who runs this)")


def registry(sub: ArgumentParser) -> None:
    """Take where images are pushed to and pulled from."""
    words = "with --print: where the nodes find the image" if sub.prog.endswith(" run") else "where images are"
    sub.add_argument("--registry", metavar="HOST/PATH", help=f"{words}: HOST/PATH/<profile>:<tag>")


def trusted(sub: ArgumentParser) -> None:
    """Take what a pushed image gets for those who check it."""
    add = sub.add_argument
    words = (
        "attach its bill of materials (CycloneDX, SPDX) and provenance to it, in a registry that takes OCI manifests"
    )
    add("--attach", action="store_true", help=words)
    words = "sign it by cosign, and what is attached: a key as cosign takes it, or keyless; cosign's options behind it"
    add("--sign", metavar="KEY", help=words)


def wanted(sub: ArgumentParser) -> None:
    """Take what an image is to hold, and where images are looked for."""
    add = sub.add_argument
    add("requirements", nargs="*", metavar="REQUIREMENT", help="what it holds, as 'vllm>=0.20' in quotes")
    add("--index", metavar="FILE", help="an index.json (default: read REGISTRY)")


index_folder = _one("--output", metavar="DIR", help="folder to write index.json and index.html to (default: out/index)")
archive = _one("--output", metavar="FILE", help="file to write, FILE.tar; FILE.tar.json beside it describes it")
since = _one(
    "--since",
    metavar="OLD",
    help="only the layers that are not in OLD: a bundle, a side file, or an image on this host",
)


def archive_to_load(sub: ArgumentParser) -> None:
    """Take a file that has an image in it."""
    add = sub.add_argument
    add("file", metavar="FILE", help="what bundle or save wrote, with its FILE.json beside it")
    add("--force", action="store_true", help="without a side file, or for another architecture")


def two_sides(sub: ArgumentParser) -> None:
    """Take two images to compare."""
    words = "a profile, REVISION:PROFILE of this checkout, a lock, a manifest.json, or an image on this host"
    sub.add_argument("old", metavar="OLD", help=words)
    sub.add_argument("new", metavar="NEW", help="the same, to compare with it")


def form(first: str, *others: str) -> Options:
    """Return what takes --format, one of some words; the first is the default."""
    return _one("--format", choices=(first, *others), default=first, help=f"{first} (default) or {' or '.join(others)}")


document = _one("--output", metavar="FILE", help="file to write (default: standard output; of HTML: in out/reports)")
older = _one("--against", metavar="OLD", help="what differs from it, which is given as to diff")


shell = _one("shell", choices=("bash", "zsh"))


def kept(sub: ArgumentParser) -> None:
    """Take what is removed: kinds, and of these what is old."""
    add = sub.add_argument
    add("kinds", nargs="*", type=_clean_kind, metavar="KIND", help=f"what to remove: {' '.join(CLEAN_KINDS)}")
    words = "only what is older, for example 7d, 12h, 2w"
    add("--older-than", metavar="AGE", type=_age, default=0.0, help=words)
    add("--keep", metavar="N", type=_kept, default=0, help="leave the newest N of each kind")


def _age(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,4})([hdw])", text)
    if not found:
        raise UsageError(f"--older-than: {text!r} is no age", hint="a number of hours, days or weeks: 12h, 7d, 2w")
    return float(found[1]) * {"h": 3600, "d": 86400, "w": 604800}[found[2]]


def _kept(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise UsageError(f"--keep: {text!r} is no number", hint="0 to 9999")
    return int(text)
