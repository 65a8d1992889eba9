"""Child processes in the image's environment: started, limited in time, ended with all that they started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from verifying.image import Image


class Finished(NamedTuple):
    """A child that ended, or was ended after the time limit (`code` None); `ending` says which."""

    code: int | None
    out: str
    err: str
    ending: str

    @property
    def last_words(self) -> list[str]:
        """The end of what it said on stderr."""
        return self.err.splitlines()[-3:]


def start(image: Image, command: Sequence[str], cwd: str = "", **streams: Any) -> subprocess.Popen[bytes]:
    """Starts a child in the image's environment, in a session of its own, in / or `cwd`. OSError when it cannot."""
    env = {**image.env, "PYTHONDONTWRITEBYTECODE": "1", **scratch(image.env)}  # no .pyc is left behind
    return subprocess.Popen(command, cwd=cwd or image.path("/"), env=env, start_new_session=True, **streams)


def scratch(env: Mapping[str, str], shared: str = "/dev/shm") -> dict[str, str]:
    """TMPDIR and HOME for a child where nothing can be written, as on a read-only root; else nothing.

    They are shared memory, which every container has: libraries that ask for a folder at import get one (tempfile,
    and torch's extensions below HOME).
    """
    places = [env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)] + ["/tmp", "/var/tmp", "/usr/tmp"]
    if any(os.access(place, os.W_OK) for place in places) or not os.access(shared, os.W_OK):
        return {}
    return {"TMPDIR": shared, "HOME": shared}


def run(image: Image, command: Sequence[str], cwd: str = "", text: str = "") -> Finished:
    """Runs a child to its end or to the time limit. OSError when it cannot start."""
    pipe = subprocess.PIPE
    child = start(image, command, cwd, stdin=pipe, stdout=pipe, stderr=pipe)
    code: int | None
    try:
        out, err = child.communicate(text.encode(), timeout=image.options.timeout)
        code = child.returncode
    except subprocess.TimeoutExpired:
        end(child)
        out, err = child.communicate()
        code = None
    how = ending(code, image.options.timeout)
    return Finished(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), how)


def program(name: str) -> str:
    """The text of a module beside this one that a child runs by `python -c`: so its folder is not in sys.path there."""
    with open(os.path.join(os.path.dirname(__file__), f"{name}.py"), encoding="utf-8") as file:
        return file.read()


def end(child: subprocess.Popen[bytes]) -> None:
    """Kills a child and whatever it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()


def ending(code: int | None, seconds: float) -> str:
    """How a child ended, in words."""
    if code is None:
        return f"no answer within {seconds:g} s"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with code {code} before it was done"
