"""The check of access: other users can read all that Python needs."""

import os
import re
import stat

from verifying.image import VENV, Entry, Image
from verifying.manifest import source_paths
from verifying.outcome import Outcome, judged

PRIVATE = "/root/"  # closed to other users in every base
SCRIPT = ("/opt/cannery/verify.py", "/opt/cannery/verifying/*")


def readable_check(image: Image) -> Outcome:
    """Other users can read all that Python needs, nothing of it lies below /root, and the image's user has a name."""
    base, sources = image.manifest["base"], source_paths(image.manifest)
    single = [base["python_home"], base["toolkit_home"], *base["set_env"], SCRIPT[0], *image.find(SCRIPT[1])]
    ways = [VENV, f"{VENV}/bin/python", *single, image.shown(image.manifest_path), *sources]
    faults = [fault for path in ways for fault in closed_on_the_way(image, path)]
    every = [entry for tree in [VENV, *sources] for entry in image.tree(tree)]
    faults += filter(None, (entry_fault(image, entry) for entry in every))
    user = image.manifest["user"]
    if user:
        line = rf"^{re.escape(user['name'])}:[^:]*:{user['uid']}:"
        if not re.search(line, image.text("/etc/passwd"), re.MULTILINE):
            faults.append(f"/etc/passwd has no user {user['name']} with uid {user['uid']}")
    return judged(list(dict.fromkeys(faults)), f"{len(every)} files and folders are readable by other users")


def entry_fault(image: Image, entry: Entry) -> str:
    """Why another user could not use a name of a tree; "" when they can."""
    if stat.S_ISLNK(entry.mode):
        target = os.readlink(entry.path)
        return f"{image.shown(entry.path)} points below /root ({target})" if target.startswith(PRIVATE) else ""
    needed = 0o005 if stat.S_ISDIR(entry.mode) else 0o004
    return "" if entry.mode & needed == needed else closed(image.shown(entry.path), entry.mode)


def closed(path: str, mode: int) -> str:
    """The fault of a path that is closed."""
    return f"{path} is closed to other users (mode {stat.S_IMODE(mode):04o})"


def closed_on_the_way(image: Image, path: str) -> list[str]:
    """Faults of the folders above a path, of the path, and of what its links lead to."""
    faults = []
    for seen in dict.fromkeys([path, image.shown(os.path.realpath(image.path(path)))]):
        if seen.startswith(PRIVATE):
            faults.append(f"{path} lies below /root ({seen})")
        parts = seen.strip("/").split("/")
        for name in ("/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)):
            try:
                mode = os.stat(image.path(name)).st_mode
            except OSError:
                break  # that it is missing is another check's finding
            needed = 0o001 if stat.S_ISDIR(mode) else 0o004
            faults += [] if mode & needed == needed else [closed(name, mode)]
    return faults
