"""Proves that this image is as in its manifest. Standard library only; Python 3.10 and later.

    /opt/venv/bin/python /opt/cannery/verify.py [--level static|import|npu|train] [--json] [--stream]

Reads /opt/cannery/manifest.json (docs/manifest.schema.json) and prints one line a check, or one JSON document
(docs/verify-report.schema.json). Exit codes: 0 all passed (warnings allowed), 1 a failure, 2 wrong use, 3 the machine
cannot run what was asked.
A check that was skipped is never called passed, and a skip that the manifest's `may_skip` does not name is a failure.
Nothing here uses the network, and nothing is written into the image. The checks are in the package beside this script.
The level train runs only when it is asked for: it makes a tiny model and data in a scratch folder, which it removes,
and on an NPU the image's trainer takes one step of GRPO with them (minutes).

This finds accidents and changes by hand (`docker exec`, `docker commit`). It is no security boundary: anyone who can
write into the image can change this script, the manifest and the interpreter that runs both. From outside,
--manifest-sha256 at least compares the manifest with the planned one.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# Python does not put the script's folder on the path with -I, -P or PYTHONSAFEPATH. Only this process is changed: a
# child's path is Python's own.
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
sys.dont_write_bytecode = True  # root runs this too, and no __pycache__ may appear in the image

from verifying.checks import LEVELS, USUAL, check_ids, run_checks
from verifying.image import MANIFEST, Image, Options
from verifying.manifest import DIGEST, ManifestError, load_manifest, nearest
from verifying.outcome import Outcome, document, lines_of, result_of, summary, values_of

EXIT = {"passed": 0, "failed": 1, "unable": 3}


def report(image: Image, wanted: Sequence[str], *, as_json: bool, stream: bool = False) -> int:
    """Runs and prints; the exit code."""
    levels: list[str] = []

    def tell(item: Outcome) -> None:
        if stream:
            print(json.dumps(values_of(item)), file=sys.stderr, flush=True)
        if not as_json:
            if item.level not in levels[-1:]:
                print(f"{chr(10) if levels else ''}── {item.level}")
                levels.append(item.level)
            print("\n".join(lines_of(item)), flush=True)

    outcomes = run_checks(image, wanted, tell)
    result = result_of(outcomes, image.options)
    if as_json:
        print(document(image.manifest, outcomes, result))
    else:
        print("\n" + summary(outcomes, result))
    return EXIT[result]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line. Wrong use ends with code 2."""
    parser = argparse.ArgumentParser(
        description="Proves that this image is as in its manifest.",
        epilog="Example: python /opt/cannery/verify.py --level static --level import   "
        "Exit codes: 0 all passed, 1 a failure, 2 wrong use, 3 the machine cannot run what was asked.",
    )
    add = parser.add_argument
    usual = f"only this level; may be given again (default: {', '.join(USUAL)}; train: one step of GRPO, minutes)"
    add("--level", action="append", choices=LEVELS, help=usual)
    add("--only", action="append", metavar="ID", help="only this check; may be given again")
    add("--list", action="store_true", help="print the ids of the checks and end")
    add("--json", action="store_true", help="print one JSON document")
    add("--stream", action="store_true", help="print each check as one line of JSON on stderr as it ends, too")
    add("--require-npu", action="store_true", help="checks that cannot run here without an NPU are exit code 3")
    add("--no-device", action="store_true", help="skip the checks that need an NPU")
    add("--timeout", type=float, default=300.0, metavar="SECONDS", help="longest silence of a child process (300)")
    add("--scratch", default="", metavar="DIR", help="where the level train writes, and leaves its log (else removed)")
    add("--manifest", metavar="PATH", help=f"the manifest ({MANIFEST})")
    add("--manifest-sha256", type=digest, metavar="HEX", help="the manifest must have this digest")
    add("--root", default="/", metavar="DIR", help="look at a tree other than / (for tests)")
    options = parser.parse_args(arguments)
    if options.require_npu and options.no_device:
        parser.error("--require-npu and --no-device exclude each other")
    if options.timeout <= 0:
        parser.error("--timeout must be above 0")
    return options


def digest(text: str) -> str:
    """A SHA-256 as hex, in lower case and without the algorithm in front."""
    found = DIGEST.fullmatch(text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"expected 64 hex digits, found {text!r}")
    return text.lower().rpartition(":")[2]


def chosen(manifest: Mapping[str, Any], options: argparse.Namespace) -> list[str]:
    """The ids that the command line asks for. LookupError names an unknown one and the nearest."""
    known = check_ids(manifest)
    for name in options.only or ():
        if name not in known:
            raise LookupError(f"no check {name}{nearest(name, known) or '; --list prints them'}")
    named = options.only or options.list  # a check that is asked for by its id, or the list of all
    only, levels = options.only or known, options.level or (LEVELS if named else USUAL)
    return [name for name in known if name in only and name.split(".")[0] in levels]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    options = parse_arguments(arguments)
    root = os.path.realpath(options.root)
    path = options.manifest or (MANIFEST if root == "/" else root + MANIFEST)
    try:
        return verified(options, root, path)
    except ManifestError as error:
        message = str(error)
    except (KeyError, TypeError, AttributeError) as error:  # in a part that every check needs
        message = f"{path}: of another form ({type(error).__name__}: {error})"
    except LookupError as error:
        print(f"verify.py: {error.args[0]}", file=sys.stderr)
        return 2
    outcome = Outcome("failed", message, id="static.manifest", level="static")
    print(document({}, [outcome], "failed") if options.json else "\n".join(lines_of(outcome)))
    return EXIT["failed"]


def verified(options: argparse.Namespace, root: str, path: str) -> int:
    """Lists the checks or runs them; the exit code. ManifestError, LookupError."""
    manifest = load_manifest(path, options.manifest_sha256 or "")
    wanted = chosen(manifest, options)
    if not wanted:
        alone = options.level == ["train"] and not options.only
        why = "this image has neither verl nor MindSpeed-RL" if alone else "--level and --only leave no check"
        print(f"verify.py: {why}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(wanted))
        return 0
    limits = Options(options.timeout, options.no_device, options.require_npu, options.scratch)
    image = Image(manifest, root, dict(os.environ), working_folder(), limits, path)
    return report(image, wanted, as_json=options.json, stream=options.stream)


def working_folder() -> str:
    """The working folder; / when it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = main()
    except KeyboardInterrupt:
        print("verify.py: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)
