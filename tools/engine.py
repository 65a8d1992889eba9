"""Run a Docker engine from the distribution's packages, for tests and for users without an installed engine.

    .venv/bin/python tools/engine.py start|stop|status|env|remove     (or make engine-start …)

Needs root on Debian 12 or newer, or Ubuntu 22.04 or newer. It installs nothing, and touches no other engine. Each
cache folder has an engine of its own: CANNERY_CACHE=FOLDER starts a second one with other data and another socket.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docker_engine import engine  # noqa: E402 - as above
from docker_engine.daemon import Layout, daemons  # noqa: E402 - as above

from cannery.context import read_context  # noqa: E402 - of the checkout, which was just put on the path
from cannery.errors import CanneryError, UnableError  # noqa: E402 - as above

USE = 'eval "$(.venv/bin/python tools/engine.py env)"'


def main() -> int:
    """Run the action; return an exit code of build.py."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("start", "stop", "status", "env", "remove"))
    parser.add_argument("--upgrade", action="store_true", help="start: fetch the newest packages, and start again")
    arguments = parser.parse_args()
    try:
        text = done(arguments.action, Layout.of(read_context(ROOT).cache), upgrade=arguments.upgrade)
    except (CanneryError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return int(getattr(error, "code", UnableError.code))
    print(text, end="")
    return 0


def done(action: str, layout: Layout, *, upgrade: bool = False) -> str:
    """Run one action and return the text to print."""
    if action == "start":
        server = engine.start(layout, os.environ, upgrade=upgrade)
        return f"Docker {server} at {layout.host}; to use it: {USE}\n"
    if action == "stop":
        return "stopped\n" if engine.stop(layout, os.environ) else "it does not run\n"
    if action == "remove":
        engine.remove(layout, os.environ)
        return ""
    found = engine.answer(layout)
    if action == "status":
        state = f"Docker {found} runs, pid {daemons(layout)[0]}" if found else "it does not run"
        return f"{state}\n  {layout.host}\n  data {layout.data}\n  log {layout.log}\n"
    if not found:
        raise UnableError("the engine does not run", hint="`make engine-start`")
    return engine.shell_text(layout)


if __name__ == "__main__":
    sys.exit(main())
