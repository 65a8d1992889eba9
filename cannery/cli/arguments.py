"""The commands and their parser."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from cannery import __version__
from cannery.cli import options
from cannery.cli.output import CHECKOUT
from cannery.errors import UsageError
from cannery.vocab import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.cli.options import Options


@dataclass(frozen=True)
class Command:
    """One command, or one action of a command: its module below cannery.commands, and its texts for --help.

    A command with `actions` has no options itself. `helps` replaces help texts of its options, and `usage` replaces the
    usage line. `defaults` are values for options that it does not have.
    """

    module: str
    summary: str
    example: str
    takes: Options = ()
    actions: Mapping[str, Command] = field(default_factory=dict)
    helps: Mapping[str, str] = field(default_factory=dict)
    usage: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict)


# Options of commands that check a set of versions, of commands that make a plan, and of those with one profile.
SET = options.target + options.wheelhouse + options.versions
PLANNED = SET + options.sources
PLAN = options.profile() + PLANNED
BUILT = options.build + options.locked + options.several + options.again + options.proof
PUSHED = options.registry + options.trusted + options.lesser
MANY = "a profile or several; --chip and --arch take several too, with commas between them"
LESSER = options.LESSER.items()
WITH_COMMAND = "[options] PROFILE [-- COMMAND ...]"
SHOWN = "a profile, or HOST/PATH/NAME:TAG: an image in a registry that was pushed with --attach"
PATCHES = {
    "list": Command(
        "patches",
        "list the patch sets, and which one each profile uses",
        "patches list verl-npu",
        options.as_json + options.profile("?", "only what this profile uses") + options.patch_sets,
    ),
    "summary": Command(
        "patches",
        "show what the patches of a profile change",
        "patches summary verl-npu transformers",
        options.as_json + options.profile() + options.one_repo + PLANNED,
    ),
    "port": Command(
        "patches",
        "try a patch set on another commit, and report what becomes of each patch",
        "patches port verl 796871d7d f50e5c2e8",
        options.as_json + options.port + options.git_mirror + options.patch_sets,
    ),
    "new": Command(
        "patches",
        "make a patch set from the changes since HEAD in a working tree",
        "patches new verl --tree ~/verl",
        options.as_json + options.new_set,
        usage="[options] REPO --tree DIR",
    ),
}
COMMANDS = {
    "list": Command("list", "list the profiles and what they are made for", "list", options.as_json),
    "show": Command(
        "list",
        "show the components of a profile with pins and reasons, or this machine's settings",
        "show quickstart",
        options.as_json + options.profile("?") + options.target + options.settings,
    ),
    "check": Command(
        "check",
        "report whether the versions of a profile work together, and why not",
        "check quickstart",
        options.as_json + options.profile() + SET + options.own_trees + options.every_note,
    ),
    "lock": Command(
        "lock",
        "resolve profiles into exact versions with hashes, and write the locks",
        "lock quickstart",
        options.profile("*", "profiles (default: all)") + SET,
        helps={"--arch": options.ARCH.format("all of the profile")},
    ),
    "new": Command(
        "authoring",
        "write a new profile: a copy of another one, to edit",
        "new mine --like quickstart",
        options.profile(words="name of the new profile") + options.new_profile,
    ),
    "facts": Command(
        "authoring",
        "write the requirements of a release or a commit into the file of its component",
        "facts vllm==0.24.0",
        options.fact + options.git_mirror,
    ),
    "base": Command(
        "authoring",
        "write the file of a new CANN version",
        "base add 9.2.0 quay.io/ascend/cann:9.2.0-910b-ubuntu22.04-py3.11",
        actions={
            "add": Command(
                "authoring",
                "write images/bases/LINE.yaml from images, or from a checkout with their Dockerfiles",
                "base add 9.2.0 ~/cann-container-image",
                options.new_base,
            )
        },
    ),
    "outdated": Command(
        "lock",
        "report newer versions, and which of them work together",
        "outdated quickstart",
        # Of the committed lock only: no other versions.
        options.as_json + options.profile() + options.target + options.wheelhouse + options.git_mirror,
    ),
    "plan": Command(
        "check",
        "show the layers of an image before it is built",
        "plan quickstart",
        options.as_json + PLAN,
    ),
    "render": Command(
        "check",
        "write the Dockerfile, bake file and wheels of an image",
        "render quickstart",
        PLAN + options.folder + options.locked,
    ),
    "image": Command(
        "image",
        "check, build and verify an image, or several",
        "image quickstart",
        options.as_json + options.profile("+", MANY) + PLANNED + BUILT + PUSHED,
        helps={f"--{word}": f"with --push: {options.MOVED.format(word=word, what=what)}" for word, what in LESSER},
    ),
    "verify": Command(
        "verify",
        "run the verify script in an image",
        "verify quickstart --require-npu",
        options.as_json + options.profile("?") + PLANNED + options.proof + options.verified,
    ),
    "proofs": Command(
        "proofs",
        "check and keep proofs, which `verify --record` writes on a host with NPUs",
        "proofs add npu.json",
        actions={
            "add": Command(
                "proofs",
                "check a proof against the locked plan, and file it in images/proofs",
                "proofs add npu.json",
                options.proof_file,
            )
        },
    ),
    "diff": Command(
        "report",
        "report what differs between two profiles, locks, manifests or images",
        "diff main:quickstart quickstart",
        options.as_json + options.two_sides + options.form("text", "markdown") + options.target,
    ),
    "sbom": Command(
        "report",
        "print the bill of materials of an image, one JSON document: each package, its hash, licence and source",
        "sbom quickstart --format spdx --output quickstart.spdx.json",
        options.profile(words=SHOWN) + PLANNED + options.form("cyclonedx", "spdx", "provenance") + options.document,
    ),
    "report": Command(
        "report",
        "write a page about an image: what is in it and why, findings, sizes, what changed",
        "report quickstart --against main:quickstart",
        options.profile() + PLANNED + options.form("html", "markdown") + options.older + options.document,
        helps={"--output": "file to write (default: for html a file in out/reports, for markdown standard output)"},
    ),
    "patches": Command(
        "patches",
        "list patch sets, show what they change, try one on another commit, make one",
        "patches summary verl-npu",
        actions=PATCHES,
    ),
    "run": Command(
        "run",
        "start a container with this host's NPUs",
        "run quickstart --print",
        PLAN + options.container + options.command_in_container + options.registry,
        helps={"--registry": f"with --print: registry that the nodes pull from: {options.REGISTRY}"},
        usage=WITH_COMMAND,
    ),
    "shell": Command(
        "run",
        "open a shell in a container with this host's NPUs",
        "shell quickstart --npus 0,1",
        PLAN + options.container,
        usage=WITH_COMMAND,
        # `shell` calls `run`, whose further options have these values.
        defaults={"show": False, "format": None, "nodes": None, "detach": False, "registry": None},
    ),
    "lint-run": Command(
        "lint",
        "report mistakes in a docker run command, a compose file or a manifest",
        "lint-run 'docker run …'",
        options.as_json + options.own_command,
    ),
    "doctor": Command(
        "doctor",
        "report what this host has for NPUs, what is missing, and what to do",
        "doctor quickstart",
        options.as_json + options.profile("?", "a profile whose image will run here") + options.target + options.host,
    ),
    "push": Command(
        "registry",
        "push a verified image to REGISTRY",
        "push quickstart --registry host/team",
        options.as_json + PLAN + PUSHED,
        helps={"--force": f"{options.FORCE}. Also replace another image under the same tag"},
    ),
    "pull": Command(
        "registry",
        "pull the image of exactly this plan from REGISTRY",
        "pull quickstart --registry host/team",
        options.as_json + PLAN + options.registry + options.lesser,
        helps={f"--{word}": f"pull an image that was pushed with --{word}" for word, _ in LESSER},
    ),
    "index": Command(
        "index",
        "write a list of the images in REGISTRY as JSON and HTML, without a pull",
        "index --registry host/team",
        options.as_json + options.profile("*", "profiles (default: all)") + options.registry + options.index_folder,
    ),
    "search": Command(
        "index",
        "list the images in REGISTRY, or in an index, that contain given packages",
        "search 'vllm>=0.20' --chip a3 --registry host/team",
        options.as_json + options.wanted + options.place + options.registry,
    ),
    "save": Command(
        "archive",
        "the same as bundle",
        "save quickstart --output q.tar",
        options.as_json + PLAN + options.archive + options.since,
    ),
    "bundle": Command(
        "archive",
        "write an image, or only its new layers, to a file that includes a loader",
        "bundle quickstart --output q.tar --since old.tar.json",
        options.as_json + PLAN + options.archive + options.since,
    ),
    "load": Command(
        "archive",
        "check and load a file that bundle or save wrote",
        "load q.tar",
        options.as_json + options.archive_to_load,
    ),
    "clean": Command(
        "host",
        "show what Cannery keeps on disk, and remove the kinds that you name",
        "clean trials --older-than 7d",
        options.as_json + options.kept,
    ),
    "completion": Command(
        "list", "print a script that completes commands and options in a shell", "completion bash", options.shell
    ),
}
# The commands that take an existing profile, which make calls PROFILE.
OF_PROFILE = frozenset(
    name for name, command in COMMANDS.items() if any(row.names == ("profile",) for row in command.takes)
) - {"index", "new"}
# Other names of commands, and commands of other tools with their name here.
ALIASES = {"build": "image"}
SYNONYMS = {
    **dict.fromkeys(("rm", "remove", "delete", "prune", "gc"), "clean"),
    **dict.fromkeys(("ls", "profiles"), "list"),
    **dict.fromkeys(("info", "inspect", "describe"), "show"),
    **dict.fromkeys(("resolve", "compile", "freeze", "update", "upgrade"), "lock"),
    **dict.fromkeys(("test", "validate"), "verify"),
    **dict.fromkeys(("start", "exec", "up"), "run"),
    **dict.fromkeys(("dockerfile", "bake", "generate"), "render"),
    **dict.fromkeys(("export", "archive"), "save"),
    **dict.fromkeys(("import", "restore"), "load"),
    **dict.fromkeys(("upload", "publish"), "push"),
    **dict.fromkeys(("download", "fetch"), "pull"),
    **dict.fromkeys(("bash", "sh", "attach"), "shell"),
    **dict.fromkeys(("diagnose", "health"), "doctor"),
    **dict.fromkeys(("compare", "changes"), "diff"),
    "lint": "lint-run",
    "find": "search",
    "make": "image",
}
# Removed commands and options, and what to use instead.
GONE = {"engine": "in a checkout, `make engine-start` starts a Docker engine; or install Docker Engine"}
GONE_OPTIONS = {
    "--as-documented": "--pin NAME==VERSION, with the version that the reason of a component names",
    "--dev": "-v DIR:/opt/src/NAME mounts your tree of a source over the image's",
    "--upgrade": "write the versions that `outdated` prints into the profile, then run `lock`",
}


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises instead of exiting, and suggests the nearest word."""

    # The help of Python 3.14 has colours, whose control characters the streams would escape.
    color = property(lambda _self: False, lambda _self, _value: None)

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - argparse's overloads
        """Parse, and refuse unknown words here, in the parser of the command, which knows its options."""
        found, extra = super().parse_known_args(args, namespace)
        if not extra:
            return found, extra
        if self.prog.endswith(" lint-run"):
            _refuse_unquoted(found.text)
        known = [o for action in self._actions for o in action.option_strings if o.startswith("--")]
        unknown = next((word for word in extra if word.startswith("-")), None)
        if unknown is not None:
            name = unknown.split("=")[0]
            near = [f"--{one}" for one in nearest(name.lstrip("-"), [o.lstrip("-") for o in known])]
            hint = f"did you mean {' or '.join(near)}?" if near else f"`{self.prog} --help` lists the options"
            raise UsageError(
                f"unknown option {name}", hint=GONE_OPTIONS.get(name) or _commands_with(name, self.prog) or hint
            )
        hint = (
            "put a command for the container behind `--`"
            if self.prog.endswith((" run", " shell"))
            else f"{self.prog} --help"
        )
        raise UsageError(f"{self.prog}: one word too many: {extra[0]!r}", hint=hint)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:  # noqa: ANN401 - argparse's
        """Refuse `--` as the value of an option, which argparse silently removes."""
        if action.option_strings and "--" in arg_strings:
            raise UsageError(f"{'/'.join(action.option_strings)}: '--' is not a value", hint=f"{self.prog} --help")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 - argparse's
        """Refuse a word that is not a choice, and suggest the nearest one."""
        if action.choices is None or value in action.choices:
            return
        what, hint = argparse.ArgumentError(action, "").argument_name, did_you_mean(value, action.choices)
        if action.dest == "command":
            hint = f"`{self.prog} {SYNONYMS[value]}` does that" if value in SYNONYMS else GONE.get(value, hint)
        raise UsageError(f"{what}: {value!r} is not known", hint=hint)

    def error(self, message: str) -> NoReturn:
        """Turn argparse's message into a `UsageError`."""
        raise UsageError(message, hint=f"{self.prog} --help")


class Help(argparse.HelpFormatter):
    """argparse's help formatter, without line breaks at hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = self._split_lines(text, width - len(indent))
        return "\n".join(indent + line for line in lines)


def make_parser(program: str = CHECKOUT, asked: str | None = None) -> Parser:
    """Return the parser of all commands; `program` is its name in messages.

    With `asked`, only that command gets its options, because making those of all commands is slow.
    """
    description = "Container images for RL on Ascend NPUs."
    parser = Parser(prog=program, description=description, allow_abbrev=False, formatter_class=Help)
    parser.add_argument("--version", action="version", version=f"cannery {__version__}")
    options.add_common(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, command in COMMANDS.items():
        is_asked = asked is None or ALIASES.get(asked, asked) == name
        sub = _add_parser(program, commands, name, command, is_asked=is_asked)
        if command.actions and is_asked:
            actions = sub.add_subparsers(dest="action", metavar="ACTION", parser_class=Parser, required=True)
            for word, action in command.actions.items():
                _add_parser(program, actions, word, action)
    return parser


def _add_parser(
    program: str,
    parsers: argparse._SubParsersAction[Parser],
    name: str,
    known: Command,
    *,
    is_asked: bool = True,
) -> Parser:
    sub = parsers.add_parser(
        name,
        help=known.summary,
        description=known.summary,
        epilog=f"example: {_in_shell(program)} {known.example}",
        allow_abbrev=False,
        aliases=[alias for alias, real in ALIASES.items() if COMMANDS[real] is known],
        formatter_class=Help,
    )
    if is_asked:
        options.add_options(sub, known.takes, known.helps)
        options.add_common(sub)
        if not known.actions:
            sub.usage = f"{sub.prog} {known.usage or options.usage_of(known.takes)}"
        sub.set_defaults(**known.defaults)
    return sub


def _in_shell(program: str) -> str:
    return f"python3 {program}" if program == CHECKOUT else program


def parse(argv: Sequence[str], program: str = CHECKOUT) -> argparse.Namespace:
    """Parse the command line. The words after `--` are the command for the container.

    Raises `UsageError` for an unknown, missing or surplus word or option, and `SystemExit` after printing --help or
    --version.
    """
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = make_parser(program, words[0] if cut and not words[0].startswith("-") else None)
    arguments = parser.parse_args(words[:cut])
    arguments.command = ALIASES.get(arguments.command, arguments.command)
    if arguments.command == "completion":
        arguments.parser = make_parser("cannery")
    command = words[cut + 1 :]
    if command and arguments.command not in {"run", "shell"}:
        raise UsageError(f"{command[0]!r} is behind `--`, which only `build.py run` and `build.py shell` take")
    arguments.run_command = command
    return arguments


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return {name: parser} of a parser's commands or actions."""
    # argparse has no public way.
    return next((dict(one.choices) for one in parser._actions if isinstance(one.choices, dict)), {})  # noqa: SLF001


def _refuse_unquoted(first: str | None) -> None:
    """Refuse a command without quotes: `lint-run docker run -it IMAGE`."""
    from cannery.lint.command import PROGRAMS  # noqa: PLC0415 - one command's

    if first in {"sudo", *PROGRAMS}:
        hint = "put quotes around it: build.py lint-run 'docker run …'"
        raise UsageError("lint-run: the command has to be one argument", hint=hint)


def _commands_with(option: str, prog: str) -> str:
    """Return a text with the commands that have an option which `prog` does not have, or ""."""
    parsers = _children(make_parser())
    parsers |= {f"{name} {word}": one for name, sub in parsers.items() for word, one in _children(sub).items()}
    names = [name for name, sub in parsers.items() if name not in ALIASES and option in sub._option_string_actions]  # noqa: SLF001
    if not names:
        return ""
    listed = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    return f"{listed} {'takes' if len(names) == 1 else 'take'} it, {prog.partition(' ')[2] or prog} does not"
