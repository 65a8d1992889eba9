"""Arguments, printing, exit codes; the one place that catches errors. Commands are imported when they are called."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import logging
import os
import re
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from cannery import __version__
from cannery.core.errors import CanneryError, ExitCode, UsageError
from cannery.core.fault import CatalogError
from cannery.core.redact import redactor
from cannery.core.words import RunFormat, did_you_mean
from cannery.edge.clean_stream import clean_streams
from cannery.edge.pipconf import environment_secrets
from cannery.edge.system_error import system_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cannery.edge.context import Context
    from cannery.edge.pipconf import PipSettings

# name: (module below cannery.commands, one line for --help, example)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "list": ("browse", "list the profiles and what they are made for", "build.py list"),
    "show": ("browse", "show one profile: components, pins, reasons", "build.py show quickstart"),
    "check": ("versions", "say whether a version set can work, and why not", "build.py check quickstart"),
    "lock": ("locking", "resolve the exact set, with hashes", "build.py lock quickstart"),
    "outdated": (
        "outdated",
        "say what is newer, and what an upgrade would change",
        "build.py outdated quickstart",
    ),
    "plan": ("versions", "show the image's layers before anything is built", "build.py plan quickstart"),
    "render": ("versions", "write the Dockerfile, bake file and wheels of an image", "build.py render quickstart"),
    "image": ("image", "check, build and verify an image", "build.py image quickstart"),
    "verify": ("image", "run the verify script in a built image", "build.py verify quickstart --require-npu"),
    "patches": (
        "patches",
        "list patch sets, say what they do, try one on another commit, make one",
        "build.py patches summary verl-npu",
    ),
    "run": ("run", "start a container with this host's NPUs", "build.py run quickstart --print"),
    "shell": ("run", "open a shell in a container with this host's NPUs", "build.py shell quickstart --npus 0,1"),
    "lint-run": ("lint_run", "say what is wrong with a docker run line of yours", "build.py lint-run 'docker run …'"),
    "doctor": ("doctor", "say what this host has and lacks for NPUs, and what to do", "build.py doctor quickstart"),
    "push": (
        "publish",
        "push a verified image to REGISTRY",
        "build.py push quickstart --registry host/team",
    ),
    "pull": (
        "publish",
        "pull the prebuilt image of exactly this plan",
        "build.py pull quickstart --registry host/team",
    ),
    "save": ("archives", "write an image into one file, with its sums", "build.py save quickstart --output q.tar.gz"),
    "bundle": (
        "archives",
        "write an image, or only what an older one lacks, into one file with its own loader",
        "build.py bundle quickstart --output q.tar --since old.tar.json",
    ),
    "load": ("archives", "load what save or bundle wrote, looked at first", "build.py load q.tar.gz"),
    "engine": ("host", "start, stop, look at or use Cannery's own Docker engine", "build.py engine env"),
    "clean": ("host", "show what Cannery holds on disk; remove what is named", "build.py clean wheels"),
}
SHIPPING_COMMANDS = frozenset({"push", "pull", "save", "bundle"})
TARGET_COMMANDS = SHIPPING_COMMANDS | {
    *("check", "lock", "outdated", "plan", "render", "image", "verify", "run", "shell")
}
# Those that make a plan, which a tree of the user's is a part of.
SOURCE_COMMANDS = SHIPPING_COMMANDS | {"plan", "render", "image", "verify", "run", "shell"}
JSON_COMMANDS = SHIPPING_COMMANDS | {
    *("list", "show", "check", "outdated", "plan", "image", "verify", "patches", "load"),
    *("lint-run", "doctor", "engine", "clean"),
}
# The verify script's levels (docs/verify-report.schema.json).
LEVELS = ("static", "import", "npu", "train")
LEVEL_HELP = "only this level, repeatable (default: all but train, which takes one step of GRPO on a tiny model)"
# Folders that a run is given (`cannery.edge.context.Given`), and the options that name them.
FOLDERS = {"wheelhouse": "wheelhouse", "mirror": "git_mirror", "patches": "patches"}
# Signals that end a run in order.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What --all shows of a command's list.
ALL = {
    "check": "every note, where a long list is folded",
    "outdated": "every package that would change, not only those that the profile names",
}
PATCHES_ACTIONS = ("list", "summary", "port", "new")
CLEAN_KINDS = ("wheels", "engine", "rootfs", "locks", "verified", "out")
INVALID_CHOICE = re.compile(r"argument (?P<what>.+?): invalid choice: '(?P<word>.*)' \(choose from (?P<known>.*)\)")


class Parser(argparse.ArgumentParser):
    """argparse that raises instead of exiting, and names the nearest word."""

    # Python 3.14's help has colours, whose signs are those that no text may have here.
    color = property(lambda _self: False, lambda _self, _value: None)

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - argparse's overloads
        """Parse; words that nothing takes are refused here, by the command's own parser, which knows its options."""
        found, extra = super().parse_known_args(args, namespace)
        if not extra:
            return found, extra
        if self.prog.endswith(" lint-run"):
            _refuse_unquoted(found.text)
        options = [o for action in self._actions for o in action.option_strings if o.startswith("--")]
        unknown = next((word for word in extra if word.startswith("-")), None)
        if unknown is not None:
            name = unknown.split("=")[0]
            raise UsageError(f"unknown option {name}", hint=_takers(name, self.prog) or did_you_mean(name, options))
        hint = "a command for the container stands behind `--`" if self.prog.endswith(" run") else f"{self.prog} --help"
        raise UsageError(f"{self.prog}: one word too many: {extra[0]!r}", hint=hint)

    def error(self, message: str) -> NoReturn:
        """Turn argparse's message into a `UsageError`, with the nearest word where one was to be chosen."""
        choice = INVALID_CHOICE.fullmatch(message)
        if choice is not None:
            known = [word.strip("' ") for word in choice["known"].split(",")]
            word = choice["word"]
            raise UsageError(f"{choice['what']}: {word!r} is not known", hint=did_you_mean(word, known))
        raise UsageError(message, hint=f"{self.prog} --help")


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="build.py", description="Container images for RL on Ascend NPUs.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"cannery {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, (_, summary, example) in COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, description=summary, epilog=f"example: python {example}", allow_abbrev=False
        )
        if name in JSON_COMMANDS:
            sub.add_argument("--json", action="store_true", help="print JSON")
        if name in TARGET_COMMANDS or name == "show":
            nargs = {"lock": "*", "verify": "?"}.get(name)
            sub.add_argument("profile", nargs=nargs, metavar="PROFILE", help="a profile")
        if name == "patches":
            _patches_options(sub)
        if name in TARGET_COMMANDS or name == "patches":
            _target_options(sub)
        if name == "show":
            _documented_option(sub)
        if name in SOURCE_COMMANDS or name == "patches":
            _source_options(sub)
        _own_options(name, sub)
        if name == "lint-run":
            _lint_options(sub)
        if name == "doctor":
            _doctor_options(sub)
        _shipping_options(name, sub)
    return parser


def _target_options(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("--cann", metavar="VERSION", help="CANN line, as 8.5.0 or 8.3.rc1")
    add("--chip", metavar="CHIP", help="910b a3 310p 910 a5, or a name that npu-smi prints")
    add("--os", metavar="OS", help="as ubuntu22.04, openeuler24.03")
    add("--python", metavar="X.Y", help='as "3.11"')
    arch = "every one of the profile" if sub.prog.endswith(" lock") else "this host's"
    add("--arch", metavar="ARCH", help=f"amd64 or arm64 (default: {arch})")
    add("--base", metavar="BASE", help="standin, a tag of images/bases, or a full image reference")
    if sub.prog.endswith(" doctor"):
        return
    add("--wheelhouse", metavar="DIR", help="a folder of wheels of yours, looked at before pip's settings")
    if sub.prog.endswith(" outdated"):
        return  # of the committed lock only
    add("--pin", metavar="NAME==VERSION", action="append", default=[], help="another version, this time (repeatable)")
    words = "release: releases of the package index in place of git commits; release:NAME,NAME of these alone"
    add("--sources", metavar="WHICH", help=words)
    _documented_option(sub)
    more = "; put the image in the place of another under a pushed tag" if sub.prog.endswith(" push") else ""
    words = f"go on in spite of findings; stamped into manifest, tag and labels{more}"
    add("--force", action="store_true", help=words)


def _refuse_unquoted(first: str | None) -> None:
    """Refuse a command that came as words of its own: `lint-run docker run -it IMAGE`."""
    from cannery.core.run_line import BEFORE, PROGRAMS  # noqa: PLC0415 - one command's

    if first in BEFORE | PROGRAMS:
        hint = "put quotes around it: build.py lint-run 'docker run …'"
        raise UsageError("lint-run: the command has to be one argument", hint=hint)


def _takers(option: str, prog: str) -> str:
    """Say which commands take an option that the one of `prog` does not; "" when none does."""
    parser = make_parser()
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))  # noqa: SLF001 - argparse has no other way
    names = [name for name, sub in commands.items() if option in sub._option_string_actions]  # noqa: SLF001
    if not names:
        return ""
    told = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    return f"{told} {'takes' if len(names) == 1 else 'take'} it, {prog} does not"


def _documented_option(sub: argparse.ArgumentParser) -> None:
    words = "the versions of the profile's guide, and what check says to it"
    sub.add_argument("--as-documented", action="store_true", help=words)


def _source_options(sub: argparse.ArgumentParser) -> None:
    words = "a folder of git repositories of yours, in place of the network"
    sub.add_argument("--git-mirror", metavar="DIR", help=words)
    words = "a folder of patch sets of yours, <repo>/<commit>/*.patch"
    sub.add_argument("--patches", metavar="DIR", help=words)
    words = "your own tree of a source (repeatable)"
    sub.add_argument("--src", metavar="NAME=DIR", action="append", default=[], help=words)


def _own_options(name: str, sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    if name in ALL:
        add("--all", action="store_true", help=ALL[name])
    if name == "lock":
        words = "edit the profile so that this package may be newer, or is of this version (repeatable)"
        add("--upgrade", metavar="NAME[==VERSION]", action="append", default=[], help=words)
    if name == "render":
        add("--output", metavar="DIR", help="folder to write (default: out/<profile>-<target>)")
    if name in {"image", "verify"}:
        add("--verify-again", action="store_true", help="run verify even when this very image has passed")
        add("--require-npu", action="store_true", help="an NPU level that cannot run is exit 4, not a skip")
    if name == "image":
        add("--no-verify", action="store_true", help="build only")
        add("--no-cache", action="store_true", help="build every stage anew")
        add("--builder", metavar="NAME", help="a buildx builder of yours (real bases only); the image is loaded back")
        add("--reuse", action="store_true", help="pull the prebuilt image from REGISTRY where it is there, else build")
    if name == "verify":
        add("--image", metavar="REF", help="another image than the profile's")
        words = "an image of yours, as docker commit makes one: what differs from PROFILE, or which profile is nearest"
        add("--against", metavar="IMAGE", help=words)
        add("--level", action="append", choices=LEVELS, default=[], help=LEVEL_HELP)
    if name in {"run", "shell"}:
        _container_options(sub)
        _run_options(sub) if name == "run" else sub.set_defaults(show=False, format=None, nodes=None, detach=False)
    if name == "engine":
        add("action", choices=("start", "stop", "status", "env"))
    if name == "clean":
        add("kinds", nargs="*", type=_clean_kind, metavar="KIND", help=f"what to remove: {' '.join(CLEAN_KINDS)}")


def _patches_options(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("action", choices=PATCHES_ACTIONS)
    add("words", nargs="*", metavar="WORD", help="what the action is about, as the usage says")
    sub.usage = (
        f"{sub.prog} list [PROFILE] | summary PROFILE [REPO] | port REPO FROM TO | new REPO --tree DIR [options]"
    )
    add("--tree", metavar="DIR", help="port: a folder to try the set on; new: the working tree to make it of")
    add("--output", metavar="DIR", help="port, new: the folder of sets that it is written to (new: images/patches)")


def _container_options(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("--npus", metavar="CARDS", help="cards, as 0,1,4-7 (default: all present), or none")
    words = "let the Ascend Docker runtime bring them, in place of single device nodes"
    add("--runtime", choices=("ascend",), help=words)
    add("--network", choices=("host", "none"), help="host: for jobs on several hosts (default: a network of its own)")
    words = "with --network host: what HCCL, gloo and the rest talk by"
    add("--interface", metavar="NAME", help=words)
    words = "your working tree of a source over the image's (repeatable)"
    add("--dev", metavar="NAME=DIR", action="append", default=[], help=words)
    add("-v", "--volume", action="append", default=[], metavar="SRC:DST", help="as docker's -v (repeatable)")
    add("-e", "--env", action="append", default=[], metavar="NAME[=VALUE]", help="as docker's -e (repeatable)")
    add("--no-caches", action="store_true", help="without your caches of models (huggingface, modelscope)")
    add("--name", help="name of the container")


def _run_options(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    sub.usage = f"{sub.prog} [options] PROFILE [-- COMMAND ...]"
    add("--detach", action="store_true", help="in the background; prints the container's id")
    add("--print", action="store_true", dest="show", help="print what starts it with the chip's full model")
    words = "what --print prints (default: docker)"
    add("--format", choices=[form.value for form in RunFormat], help=words)
    add("--nodes", type=_count, metavar="N", help="nodes of the RayCluster (default: 1)")


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise UsageError(f"--nodes: {text!r} is no number of nodes", hint="1 at least")
    return int(text)


def _lint_options(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("text", nargs="?", metavar="COMMAND", help="the docker run line, as one argument; - reads standard input")
    add("--file", metavar="FILE", help="a compose file, in place of a command")
    add("--chip", metavar="CHIP", help="the chip of the host that is to run it")
    add("--arch", metavar="ARCH", help="the CPU architecture of that host")


def _doctor_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("profile", nargs="?", metavar="PROFILE", help="a profile whose image is to run here")
    _target_options(sub)
    sub.add_argument("--root", metavar="DIR", help="a tree copied from another host, in place of this one")
    sub.add_argument("--user", metavar="NAME", help="who is to use the NPUs (default: who runs this)")


def _shipping_options(name: str, sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    if name in {"image", "push", "pull"}:
        add("--registry", metavar="HOST/PATH", help="where images are: HOST/PATH/<profile>:<tag>")
    if name in {"save", "bundle"}:
        add("--output", metavar="FILE", help="file to write; FILE.json beside it says what it is")
    if name == "bundle":
        words = "only the layers that OLD lacks: a bundle, a side file, or an image on this engine"
        add("--since", metavar="OLD", help=words)
    if name == "load":
        add("file", metavar="FILE", help="what save or bundle wrote, with its FILE.json beside it")
        add("--force", action="store_true", help="without a side file, or for another architecture")


def _clean_kind(word: str) -> str:
    # Not `choices`: with none given, argparse holds the empty list against them.
    if word not in CLEAN_KINDS:
        raise UsageError(f"KIND: {word!r} is not known", hint=did_you_mean(word, CLEAN_KINDS))
    return word


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse; what stands behind `--` is the container's command, and no option in it is ours."""
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    arguments = make_parser().parse_args(words[:cut])
    command = words[cut + 1 :]
    if command and arguments.command != "run":
        raise UsageError(f"{command[0]!r} stands behind `--`, which only `build.py run` takes")
    arguments.run_command = command
    return arguments


def main(argv: Sequence[str], root: Path) -> int:
    """Run one command and return its exit code. No traceback leaves this function, and no secret of pip's settings."""
    _prepare_streams()
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if before[number] is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    known = _Known()
    try:
        with clean_streams(known.redact):
            return int(_guarded(argv, root, known))
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python


@dataclass
class _Known:
    """What a command has read when it fails: its surroundings, whose pip settings say what is secret."""

    context: Context | None = None

    @property
    def pip(self) -> PipSettings | None:
        """The settings of pip, if they were read: what was not read can stand in no output."""
        # A cached property keeps its value there; to ask for it would ask pip.
        return vars(self.context).get("pip") if self.context else None

    def redact(self, text: str) -> str:
        """Return `text` without secrets: of pip's settings, and of proxies in the environment."""
        secrets = self.pip.credentials() if self.pip else environment_secrets(os.environ)
        return _redactor(secrets)(text)


# Asked for at every write, and to be made anew only when more is known.
_redactor = lru_cache(maxsize=2)(redactor)


def _guarded(argv: Sequence[str], root: Path, known: _Known) -> ExitCode:
    try:
        code = _dispatch(argv, root, known)
        sys.stdout.flush()  # here, where a reader that has gone makes no traceback
    except CanneryError as error:
        _print_error(error, known, as_json="--json" in argv)
        code = error.code
    except KeyboardInterrupt:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # the run ends now, and a second Ctrl-C would be a traceback
        print("interrupted: nothing half-written is used; the same command goes on from here", file=sys.stderr)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its own end
        code = ExitCode.DONE
    except OSError as error:
        found = system_error(error)
        log = _write_log(error, known)
        found.hint = "; ".join(part for part in (found.hint, f"details: {log}") if part)
        _print_error(found, known, as_json="--json" in argv)
        code = found.code
    except Exception as error:  # noqa: BLE001 - the promise: no traceback reaches a user
        code = _unexpected(error, known)
    return code


def _prepare_streams() -> None:
    """Make printing safe: a stream that was closed gets /dev/null, a character that it has no code for a `?`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Take SIGTERM and SIGHUP as Ctrl-C, so that a build, an engine start or a container ends in order."""
    raise KeyboardInterrupt


def _dispatch(argv: Sequence[str], root: Path, known: _Known) -> ExitCode:
    try:
        arguments = _parse(argv)
    except SystemExit:  # --help or --version, which have printed
        return ExitCode.DONE
    if arguments.command is None:
        make_parser().print_help()
        return ExitCode.USAGE
    return _call(arguments, root, known)


def today() -> str:
    """Read the clock: the day in UTC, in which date bounds count."""
    return datetime.now(UTC).date().isoformat()


def _call(arguments: argparse.Namespace, root: Path, known: _Known) -> ExitCode:
    from cannery.edge.context import Given, read_context  # noqa: PLC0415 - `--help` must not load the catalog's libraries

    folders = {name: getattr(arguments, option, None) for name, option in FOLDERS.items()}
    given = Given(**folders, local=getattr(arguments, "src", ()))
    context = read_context(root, given, is_json=getattr(arguments, "json", False))
    known.context = context
    if context.env.get("CANNERY_DEBUG"):
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s %(message)s")
    arguments.today = today()
    module = importlib.import_module(f"cannery.commands.{COMMANDS[arguments.command][0]}")
    try:
        return ExitCode(module.COMMANDS[arguments.command](arguments, context))
    finally:
        for note in known.pip.notes if known.pip else ():
            context.say(note)


def _print_error(error: CanneryError, known: _Known, *, as_json: bool) -> None:
    if as_json:
        texts = {"error": error.what, "where": error.where, "hint": error.hint}
        value = {**{key: known.redact(text) for key, text in texts.items()}, "exit_code": int(error.code)}
        parts = error.parts if isinstance(error, CatalogError) else ()
        value |= {"problems": [{"error": p.what, "where": p.where, "hint": p.hint} for p in parts]} if parts else {}
        print(json.dumps(value, indent=2, ensure_ascii=False))
    print(f"error: {error}", file=sys.stderr)


def _write_log(error: Exception, known: _Known) -> str:
    """Write the traceback into a log, without secrets; return its name, or how to see it where there is no room."""
    import tempfile  # noqa: PLC0415 - only here
    import traceback  # noqa: PLC0415

    try:
        with tempfile.NamedTemporaryFile("w", prefix="cannery-", suffix=".log", delete=False) as log:
            log.write(known.redact("".join(traceback.format_exception(error))))
    except OSError:  # no disk space left, most likely, and that is what is said beside it
        return "CANNERY_DEBUG=1 in the environment"
    return log.name


def _unexpected(error: Exception, known: _Known) -> ExitCode:
    name = _write_log(error, known)
    print(f"error: a defect in Cannery: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"  → please report it with {name}", file=sys.stderr)
    return ExitCode.DEFECT
