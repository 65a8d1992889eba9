"""Runs one command: output, exit codes, and the only place that catches errors. A command is imported when it runs."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from cannery.catalog.errors import CatalogError
from cannery.cli.arguments import COMMANDS, OF_PROFILE, make_parser, parse
from cannery.cli.output import CHECKOUT, MAKE, as_called, clean_streams, wants_color, width_of
from cannery.errors import CanneryError, ExitCode, NetworkError, UnableError
from cannery.util.addresses import environment_secrets, redactor
from cannery.util.io.files import is_of_files, unwritable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from cannery.cli.output import CleanStream
    from cannery.context import Context
    from cannery.util.io.pip_settings import PipSettings

# Commands that print notes about settings of pip that the resolver ignores.
RESOLVING = ("lock", "outdated")
# Commands that use unpacked layers, which needs root or a user namespace.
UNPACKING = ("image", "build", "verify", "shell", "clean", "diff")
# Commands whose standard output is copied or executed, so it is not wrapped.
AS_IT_IS = ("run", "shell", "completion", "diff", "sbom", "report")
# {module: connection errors}. If a connection was made, the module is already loaded.
_OF_NETWORK = {"socket": ("gaierror", "herror"), "requests": ("RequestException",)}
_NEXT = {
    errno.ENOENT: "a file or folder is missing that should be there: create it, then run the same command again",
    errno.EMFILE: "more files may be open at once with `ulimit -n 4096`",
    errno.ENFILE: "this host has too many open files: stop programs that hold them",
    errno.ENOMEM: "make room in memory, then run the same command again",
}
# Signals that end a run cleanly.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# New objects before Python searches for reference cycles. A run keeps many objects and has few cycles. With the default
# of 700, the search takes a tenth of the time.
COLLECT_AFTER = 100_000


def main(argv: Sequence[str], root: Path, *, program: str = CHECKOUT, work: Path | None = None) -> int:
    """Run one command and return its exit code. It prints no traceback, and no secret from pip's settings.

    `root` and `work` are the folders of `Context`. Messages write commands as those of `program`.
    """
    _prepare_streams()
    gc.set_threshold(COLLECT_AFTER)
    # pydantic would search all installed packages for plugins, which takes longer than reading the catalog.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if before[number] is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    known = _Known(program)
    try:
        with clean_streams(known.clean) as known.streams:
            return int(_guarded(argv, root, work, known))
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python


@dataclass
class _Known:
    """The program name of a run, its streams, and its context once it is read, which has the secrets to mask."""

    program: str = CHECKOUT
    streams: tuple[CleanStream, ...] = ()
    context: Context | None = None

    @property
    def pip(self) -> PipSettings | None:
        """The settings of pip, if they were read. Otherwise they cannot be in the output."""
        # The cached property stores its value there. Reading the property would run pip.
        return vars(self.context).get("pip") if self.context else None

    def redact(self, text: str) -> str:
        """Return `text` with the secrets of pip's settings and of proxies in the environment masked."""
        secrets = self.pip.credentials() if self.pip else environment_secrets(os.environ, self.mirrors)
        return _redactor(secrets)(text)

    @property
    def mirrors(self) -> tuple[str, ...]:
        """The addresses of this machine's mirrors, if they were read."""
        return self.context.settings.addresses if self.context else ()

    def clean(self, text: str) -> str:
        """Return `text` for printing: without secrets, and with commands in the form that the user called."""
        return as_called(self.redact(text), self.program, COMMANDS, OF_PROFILE)

    def look(self, arguments: argparse.Namespace) -> None:
        """Set up the streams for --color, --quiet and the terminal."""
        choice, env = getattr(arguments, "color", "auto"), os.environ
        if choice != "auto":  # rich and child processes read it there
            env.pop("NO_COLOR", None)
            env.update({"NO_COLOR": "1"} if choice == "never" else {})
        for stream in self.streams:
            stream.color = wants_color(choice, stream, env)
            stream.width = width_of(stream, env)
        if self.streams:
            out, err = self.streams
            err.muted = getattr(arguments, "quiet", False)
            if getattr(arguments, "json", False) or arguments.command in AS_IT_IS:
                out.width, out.color = 0, False


# Every write calls it. It only changes if the secrets change.
_redactor = lru_cache(maxsize=2)(redactor)


def _guarded(argv: Sequence[str], root: Path, work: Path | None, known: _Known) -> ExitCode:
    try:
        code = _dispatch(argv, root, work, known)
        sys.stdout.flush()  # here, where a closed pipe causes no traceback
    except CanneryError as error:
        _print_error(error, known, as_json="--json" in argv)
        code = error.code
    except KeyboardInterrupt:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # the run ends now, and a second Ctrl-C would print a traceback
        _unmute(known)
        print("interrupted: nothing half-written is used; run the same command again to continue", file=sys.stderr)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python prints an error at its exit
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
    """Make printing safe: a closed stream becomes /dev/null, and a character that cannot be encoded becomes `?`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that a build or a container ends cleanly."""
    raise KeyboardInterrupt


def _unmute(known: _Known) -> None:
    for stream in known.streams:
        stream.muted = False


def _dispatch(argv: Sequence[str], root: Path, work: Path | None, known: _Known) -> ExitCode:
    program = CHECKOUT if known.program == MAKE else known.program
    begun: dict[str, str] = {}
    if is_asked(argv):
        from cannery.build.io.stamp import inputs_now, stamped  # noqa: PLC0415 - one command's

        begun = inputs_now(root, os.environ)
        if lines := stamped(argv, (work or root) / "out", begun):
            print("\n".join(lines))
            print(f"nothing has changed; {AGAIN} looks at everything again", file=sys.stderr)
            return ExitCode.DONE
    try:
        arguments = parse(argv, program)
    except SystemExit:  # --help or --version, which have printed
        return ExitCode.DONE
    if arguments.command is None:
        make_parser(program).print_help()
        return ExitCode.USAGE
    arguments.words, arguments.begun = argv, begun
    known.look(arguments)
    return _call(arguments, root, work, known)


def today() -> str:
    """Return today's date in UTC, as in date bounds."""
    return datetime.now(UTC).date().isoformat()


def _call(arguments: argparse.Namespace, root: Path, work: Path | None, known: _Known) -> ExitCode:
    from cannery.context import read_context  # noqa: PLC0415 - `--help` must not load the catalog's libraries

    known.context = context = read_context(root, vars(arguments), work)
    if getattr(arguments, "registry", "") is None and not _is_of_this_host(arguments):
        arguments.registry = context.settings.text("registry") or None
    if context.is_verbose or context.env.get("CANNERY_DEBUG"):
        import logging  # noqa: PLC0415 - only here

        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s %(message)s")
    arguments.today = today()
    if arguments.command in UNPACKING:
        from cannery.commands.place import enter_namespace  # noqa: PLC0415 - not for `list`

        enter_namespace(context, known.program, getattr(arguments, "output", None))
    module = importlib.import_module(f"cannery.commands.{COMMANDS[arguments.command].module}")
    try:
        code = ExitCode(module.COMMANDS[arguments.command](arguments, context))
        for warning in context.warnings:
            context.say(warning)
        return code
    finally:
        for note in known.pip.notes_for(resolving=arguments.command in RESOLVING) if known.pip else ():
            context.say(note)


def _is_of_this_host(arguments: argparse.Namespace) -> bool:
    """Whether the command does not use the registry in the settings. `run` uses it for a cluster."""
    if arguments.command == "search":
        return arguments.index is not None  # --index only conflicts with an explicit --registry
    return arguments.command in {"run", "shell"} and arguments.format in {None, "docker", "compose"}


def _print_error(error: CanneryError, known: _Known, *, as_json: bool) -> None:
    _unmute(known)
    if as_json:
        texts = {"error": error.what, "where": error.where, "hint": error.hint}
        value = {**{key: known.redact(text) for key, text in texts.items()}, "exit_code": int(error.code)}
        parts = error.parts if isinstance(error, CatalogError) else ()
        value |= {"problems": [{"error": p.what, "where": p.where, "hint": p.hint} for p in parts]} if parts else {}
        # A full standard output may be the error itself. It is also printed on standard error.
        with suppress(OSError):
            print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
    with suppress(OSError):
        print(f"error: {error}", file=sys.stderr)


def system_error(error: OSError) -> CanneryError:
    """Return the user's error for an OSError: the file, the reason, and what to do next."""
    loaded = ((sys.modules[module], kinds) for module, kinds in _OF_NETWORK.items() if module in sys.modules)
    known = (getattr(module, kind) for module, kinds in loaded for kind in kinds)
    if isinstance(error, (ConnectionError, TimeoutError, *known)):
        reason = error.strerror or type(error).__name__
        return NetworkError(f"a connection failed: {reason[:1].lower()}{reason[1:]}", hint="run the same command again")
    reason = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    where = _path(error.filename)
    if error.filename2:
        where += f" → {_path(error.filename2)}"
    hint = unwritable(error, where).hint if is_of_files(error) else _NEXT.get(error.errno or 0, "")
    return UnableError(f"cannot be used: {reason[:1].lower()}{reason[1:]}" if where else reason, where=where, hint=hint)


def _path(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""


def _write_log(error: Exception, known: _Known) -> str:
    """Write the traceback to a log file without secrets. Return its name, or how to see it if the disk is full."""
    import tempfile  # noqa: PLC0415 - only here
    import traceback  # noqa: PLC0415

    try:
        with tempfile.NamedTemporaryFile("w", prefix="cannery-", suffix=".log", delete=False) as log:
            log.write(known.redact("".join(traceback.format_exception(error))))
    except OSError:  # usually a full disk, which is then the error itself
        return "CANNERY_DEBUG=1 in the environment"
    return log.name


def _unexpected(error: Exception, known: _Known) -> ExitCode:
    name = _write_log(error, known)
    _unmute(known)
    print(f"error: a defect in Cannery: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"  → please report it with {name}", file=sys.stderr)
    return ExitCode.DEFECT


STAMPED = ("image", "build")


AGAIN = "--no-stamp"


def is_asked(words: Sequence[str]) -> bool:
    """Whether the stamp of an earlier run may replace this command."""
    return bool(words) and words[0] in STAMPED and AGAIN not in words
