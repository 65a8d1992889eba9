"""Run a target of the Makefile as a command of build.py: variables of make's command line become options.

    python3 tools/make_command.py TARGET

Standard library only, and for old Pythons too: it makes .venv where that is missing, then runs build.py in it.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

from setup_venv import OLDEST, current

ROOT = Path(__file__).resolve().parent.parent
# Variables with one value, each the option of its name in lower case.
VALUES = (
    *("CANN", "CHIP", "OS", "PYTHON", "ARCH", "BASE", "WHEELHOUSE", "NPUS", "NETWORK", "INTERFACE", "RUNTIME"),
    *("FORMAT", "NODES", "BUILDER", "SOURCES", "GIT_MIRROR", "PATCHES", "REGISTRY", "OUTPUT", "SINCE", "AGAINST"),
    *("CATALOG", "WITH", "RECORD", "SIGN", "CACHE"),
)
# Variables with a list of words, each word an option; and switches, which are on unless they say 0, no, false or off.
LISTS = {"PIN": "--pin", "LEVEL": "--level"}
SWITCHES = {
    "FORCE": "--force",
    "PRINT": "--print",
    "REUSE": "--reuse",
    "SETTINGS": "--settings",
    "LOCKED": "--locked",
    "NO_STAMP": "--no-stamp",
    "PUSH": "--push",
    "ATTACH": "--attach",
    "KEEP_GOING": "--keep-going",
    "UNVERIFIED": "--unverified",
    "PARTIAL": "--partial",
}
# Former variables, and what replaces them.
GONE = {"DOCUMENTED": "PIN=NAME==VERSION takes the version that the reason of a component names"}
OFF = {"", "0", "no", "false", "off"}
OTHERS = ("PROFILE", "VERL_PATH", "CMD", "KIND", "FILE", "HOST_PYTHON", "CANNERY_CACHE", "MAX_JOBS", "ARGS")
KNOWN = (*VALUES, *LISTS, *SWITCHES, *OTHERS)
# Targets that require PROFILE.
NEED_PROFILE = (
    *("show", "check", "outdated", "plan", "render", "image", "verify", "run", "shell", "new"),
    *("push", "pull", "save", "bundle", "sbom", "report"),
)
# Targets whose words are in ARGS, each with an example.
ARGS_EXAMPLES = {"diff": "'main:quickstart quickstart'", "search": "'vllm>=0.20'"}
# Targets of the test engine, which are not commands of build.py.
ENGINE = "engine-"
_WORD = re.compile(r"(?:\\.|[^\\ \t])+", re.DOTALL)


def main() -> int:
    """Run the command and return its exit code, which make prints; make itself ends with 2 for every failure."""
    target = sys.argv[1]
    given = variables(os.environ.get("MAKEFLAGS", ""))
    try:
        words = command(target, given)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # Handled here, since another Python process takes a third of the time of a short command.
    if sys.version_info < OLDEST or not current([ROOT / "requirements.txt"]):
        made = subprocess.run((sys.executable, str(ROOT / "tools/setup_venv.py")), check=False)
        if made.returncode != 0:
            return made.returncode
    env = {name: value for name, value in os.environ.items() if name not in given and not name.startswith("MAKE")}
    env["CANNERY_PROGRAM"] = "make"
    env |= {name: given[name] for name in ("CANNERY_CACHE", "MAX_JOBS") if name in given}
    text = given.get("CMD", "").encode() if target == "lint-run" and given.get("CMD") else None
    script = "tools/engine.py" if target.startswith(ENGINE) else "build.py"
    line = (str(ROOT / ".venv/bin/python"), str(ROOT / script), *words)
    if text is None:
        os.execve(line[0], line, env)
    return subprocess.run(line, env=env, input=text, check=False).returncode


def variables(flags: str) -> dict[str, str]:
    """Return {name: value} of the variables on make's command line, which make passes on in MAKEFLAGS.

    They are behind `--`, with blanks and backslashes escaped, and with each `$` doubled.
    """
    _, _, texts = (" " + flags).partition(" -- ")
    words = [re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL) for word in _WORD.findall(texts)]
    pairs = [word.replace("$$", "$").partition("=") for word in words]
    return {name.rstrip(":+?"): value for name, _, value in pairs}


def command(target: str, given: dict[str, str]) -> list[str]:
    """Return the words of the command of `target`. Raises `ValueError` for a variable that is unknown or missing.

    A command gets every variable that was given: it refuses one that it does not know.
    """
    unknown = [name for name in given if name not in KNOWN and not name.startswith("SRC_")]
    if unknown:
        near = [one for name in unknown for one in difflib.get_close_matches(name.upper(), KNOWN, 1, 0.7)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {' '.join(KNOWN)} SRC_<component>"
        raise ValueError(f"unknown variable {' '.join(unknown)}; {GONE.get(unknown[0], hint)}")
    more, cmd = given.get("ARGS", "").split(), given.get("CMD", "")
    if target == "patches":  # its action is before its options
        return [target, *(more or ["list"]), *given.get("PROFILE", "").split(), *options(given)]
    words = [target.removeprefix(ENGINE), *positional(target, given), *options(given), *more]
    return [*words, "--", "sh", "-c", cmd] if target in {"run", "shell"} and cmd else words


def positional(target: str, given: dict[str, str]) -> list[str]:
    """Return the arguments of a command that are not options."""
    profile = given.get("PROFILE", "")
    is_other = (target == "verify" and given.get("AGAINST")) or (target == "show" and given.get("SETTINGS"))
    if target in {"lock", "doctor"} or is_other:
        return profile.split()
    if target in NEED_PROFILE and not profile:
        missing(target, "PROFILE", "mine ARGS='--like quickstart'" if target == "new" else "quickstart")
    if target in NEED_PROFILE:
        return profile.split() if target == "image" else [profile]
    if target == "load":
        return [given.get("FILE") or missing(target, "FILE", "quickstart.tar")]
    if target == "lint-run":
        return (["-"] if given.get("CMD") else []) + (["--file", given["FILE"]] if given.get("FILE") else [])
    if target in ARGS_EXAMPLES and not given.get("ARGS"):
        missing(target, "ARGS", ARGS_EXAMPLES[target])
    return given.get("KIND", "").split() if target == "clean" else []


def missing(target: str, name: str, example: str) -> str:
    """Raise `ValueError` for a missing variable."""
    raise ValueError(f"{name} is not set, for example: make {target} {name}={example}")


def options(given: dict[str, str]) -> list[str]:
    """Return the options of the variables, in the order in which `make help` lists the variables."""
    words: list[str] = []
    for name in VALUES:
        if given.get(name):
            words += ["--" + name.lower().replace("_", "-"), given[name]]
    for name, option in LISTS.items():
        words += [part for word in given.get(name, "").split() for part in (option, word)]
    words += [option for name, option in SWITCHES.items() if given.get(name, "") not in OFF]
    trees = [name[4:] + "=" + folder for name, folder in given.items() if name.startswith("SRC_")]
    # VERL_PATH is what verl_npu's own guide calls the tree of verl.
    trees += ["verl=" + given["VERL_PATH"]] if given.get("VERL_PATH") else []
    return words + [part for tree in trees for part in ("--src", tree)]


if __name__ == "__main__":
    sys.exit(main())
