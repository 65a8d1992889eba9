"""Checks of access: other users can read what Python needs; the user of this process has a name, and can write."""

import os
import re
import stat

from verifying.image import VENV, Image
from verifying.manifest import scripts, source_paths
from verifying.outcome import Outcome, failed, judged, passed, warning

PRIVATE = "/root/"  # closed to other users in every base
SCRIPT = ("/opt/cannery/verify.py", "/opt/cannery/verifying/**")


def readable_check(image: Image) -> Outcome:
    """Other users can read everything that Python needs, and none of it is below /root."""
    base, sources = image.manifest["base"], source_paths(image.manifest)
    single = [base["python_home"], base["toolkit_home"], *scripts(base), SCRIPT[0], *image.find(SCRIPT[1])]
    ways = [VENV, f"{VENV}/bin/python", *single, image.shown(image.manifest_path), *sources]
    faults = [fault for path in ways for fault in closed_on_the_way(image, path)]
    every = [entry for tree in [VENV, *sources] for entry in image.tree(tree)]
    for entry in every:
        if stat.S_ISLNK(entry.mode):
            target = os.readlink(entry.path)
            faults += [f"{image.shown(entry.path)} points below /root ({target})"] if target.startswith(PRIVATE) else []
            continue
        needed = 0o005 if stat.S_ISDIR(entry.mode) else 0o004
        faults += [] if entry.mode & needed == needed else [closed(image.shown(entry.path), entry.mode)]
    return judged(list(dict.fromkeys(faults)), f"{len(every)} files and folders are readable by other users")


def closed(path: str, mode: int) -> str:
    """The fault of a path that is closed."""
    return f"{path} is closed to other users (mode {stat.S_IMODE(mode):04o})"


def closed_on_the_way(image: Image, path: str) -> list[str]:
    """Faults of a path, of the folders above it, and of what its links lead to."""
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


# vllm-project/vllm-ascend issue 9490: HCCL looks its user up, and fails between cards when there is none.
NAMELESS = "HCCL between several cards fails for a user without a name, and so does what asks for one"


def user_check(image: Image) -> Outcome:
    """The image's user is in /etc/passwd as in the manifest, and the user of this process has a name there."""
    user, uid = image.manifest["user"], os.geteuid()
    faults = []
    if user and field(image, user["uid"], 0) != user["name"]:
        faults.append(f"/etc/passwd has no user {user['name']} with uid {user['uid']}")
    elif user:
        for what, column in (("gid", 3), ("home", 5)):
            wanted, found = user.get(what), field(image, user["uid"], column)
            if wanted is not None and found and found != str(wanted):
                faults.append(f"/etc/passwd gives {user['name']} the {what} {found}, the manifest says {wanted}")
        if user.get("home") and not os.path.isdir(image.path(user["home"])):
            faults.append(f"{user['home']}, the home of {user['name']}, is not there")
    if faults:
        return judged(faults, "")
    name = field(image, uid, 0)
    if not name:
        at = f"run as {user['name']} ({user['uid']})" if user else "run as root"
        return warning(f"uid {uid} has no line in /etc/passwd: {NAMELESS}; {at}, or mount an /etc/passwd that names it")
    made = f"{user['name']} ({user['uid']}), home {user.get('home')}" if user else "root"
    return passed(f"the image runs as {made}; this process is {name} ({uid})")


def field(image: Image, number: object, column: int, kind: str = "passwd") -> str:
    """A column of the line that /etc/passwd or /etc/group has for a number; "" when it has none."""
    line = re.search(rf"^[^:\n]*:[^:\n]*:{number}:.*$", image.text(f"/etc/{kind}"), re.MULTILINE)
    return line[0].split(":")[column] if line else ""


def writable_check(image: Image) -> Outcome:
    """Programs can write in each folder that a variable of the manifest names, and the image's user at home."""
    names = image.manifest["checks"].get("writable", ())
    places = {f"{name}={value}": value for name in names if (value := image.env.get(name, ""))}
    user = image.manifest["user"]
    if user and user.get("home") and os.geteuid() == user["uid"]:
        places[f"home {user['home']}"] = user["home"]
    closed = [f"{label}: {why}" for label, path in places.items() if (why := why_closed(image, path))]
    if closed and all(why.endswith(READ_ONLY) for why in closed):
        # A variable may name a part of the image's caches: all of them go on one tmpfs.
        shut = [path for path in places.values() if why_closed(image, path)]
        tops = sorted({"/".join(path.split("/")[:4]) if path.startswith("/var/cache/") else path for path in shut})
        given = " ".join(f"--tmpfs {path}" for path in tops)
        return warning(f"this container is read-only, and programs write to {', '.join(tops)}: start it with {given}")
    if closed:
        return failed(f"uid {os.geteuid()} cannot write {len(closed)} of {len(places)} folders", closed)
    home = image.env.get("HOME", "")
    if user and home and (why := why_closed(image, home)):
        return warning(f"HOME={home}: {why}, and Ray writes there, as others do: start it with -e HOME=/tmp")
    if why := why_closed(image, image.shown(image.cwd)):
        meta = f"CANN's compiler writes kernel_meta into the working folder, {image.shown(image.cwd)}"
        return warning(f"{meta}; uid {os.geteuid()}: {why}; start it with --workdir of a folder that it can write")
    return passed(f"{len(places)} folders can be written by uid {os.geteuid()}" if places else "no folder is named")


READ_ONLY = "read-only file system"


def why_closed(image: Image, path: str) -> str:
    """Why this process cannot write in a folder, or make it where it is missing; "" when it can."""
    here = image.path(path)
    while not os.path.lexists(here) and here != os.path.dirname(here):
        here = os.path.dirname(here)
    if not os.path.isdir(here):
        return f"{image.shown(here)} is no folder"
    if os.access(here, os.W_OK | os.X_OK, effective_ids=True):
        return ""
    if os.statvfs(here).f_flag & os.ST_RDONLY:
        return READ_ONLY
    about = os.stat(here)
    return f"{image.shown(here)} belongs to {about.st_uid}:{about.st_gid}, mode {about.st_mode & 0o7777:04o}"
