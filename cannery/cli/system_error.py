"""An error of the operating system that no part of Cannery has turned into one of its own, in plain words."""

from __future__ import annotations

import errno
import os
import sys

from cannery.errors import CanneryError, NetworkError, UnableError
from cannery.util.io.files import is_of_files, unwritable

# Errors of connections, by the module that has them: it is loaded wherever one was made.
_OF_NETWORK = {"socket": ("gaierror", "herror"), "requests": ("RequestException",)}
_NEXT = {
    errno.ENOENT: "it was there before, or should be: make it, then run the same command again",
    errno.EMFILE: "more files may be open at once with `ulimit -n 4096`",
    errno.ENFILE: "this host has too many open files: stop programs that hold them",
    errno.ENOMEM: "make room in memory, then run the same command again",
    errno.ENAMETOOLONG: "use a folder with a shorter name",
    errno.ELOOP: "a symbolic link leads back to itself: remove it",
}


def system_error(error: OSError) -> CanneryError:
    """Return the error to report: which file, why, what to do next."""
    if _is_of_network(error):
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


def _is_of_network(error: OSError) -> bool:
    loaded = ((sys.modules[module], kinds) for module, kinds in _OF_NETWORK.items() if module in sys.modules)
    known = (ConnectionError, TimeoutError, *(getattr(module, kind) for module, kinds in loaded for kind in kinds))
    return isinstance(error, known)
