"""Checks of what the image is built on: the venv's Python, CANN, and the shared memory of the container."""

import os
import re
from collections.abc import Iterable

from verifying.child import work
from verifying.image import VENV, Image
from verifying.manifest import CANN_VERSION, cann_version, scripts, without_build
from verifying.outcome import Outcome, failed, judged, passed, warning


def python_check(image: Image) -> Outcome:
    """The venv's interpreter runs, has the target's minor version, is /opt/venv's, and sees no other packages."""
    wanted, shown = image.manifest["target"]["python"], image.shown(image.python)
    (answer,) = work(image, [{"do": "python"}])
    if not answer.ok:
        return failed(f"{shown}: {answer.causes[0]}", answer.noise.splitlines()[-3:])
    facts = answer.result
    home = image.manifest["base"]["python_home"]
    faults = []
    if facts["version"].split(".")[:2] != wanted.split("."):
        faults.append(f"{shown} is Python {facts['version']}, the target is {wanted}")
    if not same_place(facts["prefix"], [image.path(VENV)]):
        faults.append(f"its prefix is {image.shown(facts['prefix'])}, not {VENV}")
    settings = image.text(f"{VENV}/pyvenv.cfg")
    origin = re.search(r"^home\s*=\s*(.+?)/bin$", settings, re.MULTILINE)
    places = [facts["base_prefix"], *([origin[1]] if origin else [])]  # a base may link its Python to another prefix
    if not any(same_place(place, (home, image.path(home))) for place in places):
        faults.append(f"it belongs to the Python at {' or '.join(places)}, the manifest says {home}")
    if re.search(r"^include-system-site-packages\s*=\s*true", settings, re.MULTILINE | re.IGNORECASE):
        faults.append(f"{VENV}/pyvenv.cfg lets the base's own packages in (include-system-site-packages = true)")
    return judged(faults, f"Python {facts['version']} in {VENV}, of {home}")


def same_place(path: str, others: Iterable[str]) -> bool:
    """Whether a path is one of the others, links followed."""
    return os.path.realpath(path) in map(os.path.realpath, others)


def base_check(image: Image) -> Outcome:
    """CANN's version files have the manifest's versions, toolkit and NNAL the target's; CANN's scripts exist."""
    base, cann = image.manifest["base"], without_build(image.manifest["target"]["cann"].lower())
    faults, seen = [], []
    for item in base["version_files"]:
        found = cann_version(image.text(item["path"]))
        seen.append((item["name"], found or "unknown", item["path"]))
        recorded = without_build(item["version"].lower())
        wanted = cann if item["name"].lower() in {"toolkit", "nnal"} else recorded
        notes = "" if recorded == wanted else f" (the manifest records {item['version']})"
        if not os.path.isfile(image.path(item["path"])):
            faults.append(f"{item['name']}: {item['path']} does not exist")
        elif not found:
            faults.append(f"{item['name']}: {item['path']} states no CANN version")
        elif found != wanted or notes:
            faults.append(f"{item['name']} is {found} ({item['path']}), the target's CANN is {wanted}{notes}")
    # The info files of an installed CANN: beside the manifest's version files, and where `latest` leads.
    places = [os.path.dirname(item["path"]) for item in base["version_files"]]
    places.append("/usr/local/Ascend/ascend-toolkit/latest/*-linux")
    info_files = dict.fromkeys(path for place in places for path in image.find(f"{place}/*_install.info"))
    faults += [
        f"{path} names CANN {', '.join(others)}, the target's is {cann}"
        for path in info_files
        if (others := sorted(stated(image.text(path)) - {cann}))
    ]
    listed = "; ".join(f"{name} {version} ({path})" for name, version, path in seen)
    if faults and len({version for _, version, _ in seen}) > 1:
        faults.insert(0, f"parts of CANN differ: {listed}")
    needed = [base["toolkit_home"], *scripts(base)]
    faults += [f"{path} does not exist" for path in needed if not image.exists(path)]
    if not seen:
        faults.append("the manifest names no version file of CANN")
    return judged(faults, f"CANN {cann}: {listed}")


def stated(text: str) -> set[str]:
    """The CANN versions that the lines version, version_dir and path of an info file name."""
    lines = re.findall(r"^(?:version|version_dir|path)=.*$", text, re.MULTILINE)
    return {match[1].lower() for line in lines for match in CANN_VERSION.finditer(line)}


def shm_check(image: Image) -> Outcome:
    """/dev/shm is large enough for the workers of this profile (a warning: the user's flag sets it, not the image)."""
    wanted = image.manifest["shm_min_bytes"]
    flag = f"--shm-size={-(-wanted >> 20)}m"
    try:
        about = os.statvfs(image.path("/dev/shm"))
    except OSError as error:
        return warning(f"/dev/shm: {error.strerror}; start the container with {flag}")
    found = about.f_blocks * about.f_frsize
    if found < wanted:
        return warning(f"/dev/shm has {size_of(found)}, this profile needs {size_of(wanted)}: {flag}")
    return passed(f"/dev/shm has {size_of(found)}")


def size_of(count: int) -> str:
    """Bytes for people."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
