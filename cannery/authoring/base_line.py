"""Make images/bases/<line>.yaml from the environment of a CANN version's images, or from their Dockerfiles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cannery.catalog.target import order
from cannery.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import BaseLine

TAG = re.compile(r"(?P<cann>[\w.]+?)-(?P<chip>[a-z0-9]+)-(?P<os>[a-z]+[\d.]+)-py(?P<python>3\.\d+)")
PYTHON_HOME = re.compile(r"/usr/local/python(3\.[0-9.]*[0-9])(?=/|:|$)")
ABI = re.compile(r"cxx_abi_([01])\b")
ENV_LINE = re.compile(r"ENV\s+([A-Za-z_]\w*)[=\s](.*)")
SOURCED = re.compile(r"(?:source|\.)\s+(/[^\s&;\"]+(?: --[^\s&;\"]+)*)")


@dataclass(frozen=True)
class Made:
    """One image: its ENV, as (name, value) in order, and the scripts that its ENTRYPOINT sources; () if unknown."""

    env: tuple[tuple[str, str], ...]
    scripts: tuple[str, ...] = ()


def read_dockerfile(text: str) -> Made:
    """Return what the last stage of a Dockerfile sets."""
    stage = re.split(r"(?m)^FROM ", text)[-1].replace("\\\n", " ")
    env = tuple((found[1], found[2].strip()) for line in stage.splitlines() if (found := ENV_LINE.fullmatch(line)))
    entry = next((line for line in stage.splitlines() if line.startswith("ENTRYPOINT")), "")
    return Made(env, tuple(SOURCED.findall(entry)))


def make_line(cann: str, images: Mapping[str, Made], known: Mapping[str, BaseLine], source: str) -> dict[str, Any]:
    """Return the values of a base's file from its `images`, by tag.

    What images do not show (`version_files`, `python_packages`, and `set_env` without scripts) is copied from the
    nearest line of `known`, with this version in it. Raises `UsageError` for images without CANN.
    """
    wanted = order(cann)
    older = [line for line in known.values() if order(line.cann) <= wanted]
    # The newest older line, or else the oldest newer one.
    near = max(older, key=lambda line: order(line.cann)) if older else min(known.values(), key=lambda o: order(o.cann))
    env: dict[str, list[str]] = {}
    tags: dict[str, dict[str, Any]] = {}
    for tag, image in images.items():
        values = dict(image.env)
        paths = ":".join(value for name, value in image.env if name == "PATH")
        python, abi = PYTHON_HOME.search(paths), ABI.search(values.get("ATB_HOME_PATH", ""))
        if "ASCEND_TOOLKIT_HOME" not in values or python is None:
            what = "its ENV has no ASCEND_TOOLKIT_HOME, or its PATH no /usr/local/python<version>"
            raise UsageError(f"{tag} is no CANN image: {what}")
        tags[tag] = {"python": python[1], "atb_abi": int(abi[1]) if abi else 1}
        env.setdefault(_os(tag), [f"{name}={_open(value)}" for name, value in image.env])
    first = next(iter(images.values()))
    home = dict(first.env)["ASCEND_TOOLKIT_HOME"]

    def mine(text: str) -> str:
        return text.replace(near.toolkit_home, home).replace(near.cann, cann)

    scripts = next((image.scripts for image in images.values() if image.scripts), ())
    copied = ["version_files", "python_packages", *([] if scripts else ["set_env"])]
    return {
        "cann": cann,
        "source": f"{source}; {', '.join(copied)} as CANN {near.cann}",
        "toolkit_home": home,
        "set_env": list(scripts or map(mine, near.set_env)),
        "version_files": [{"name": one.name, "path": mine(one.path), "line": one.line} for one in near.version_files],
        "python_packages": list(near.python_packages),
        "env": env,
        "tags": dict(sorted(tags.items())),
    }


def odd_tags(images: Mapping[str, Made]) -> tuple[str, ...]:
    """Return the tags whose ENV differs from that of the first image on their OS, which is recorded."""
    first: dict[str, list[tuple[str, str]]] = {}
    opened = {tag: [(name, _open(value)) for name, value in image.env] for tag, image in images.items()}
    return tuple(tag for tag, env in opened.items() if first.setdefault(_os(tag), env) != env)


def _open(value: str) -> str:
    """Return a value with placeholders for the parts that differ by tag."""
    return ABI.sub("cxx_abi_{atb_abi}", PYTHON_HOME.sub("{python_home}", value))


def _os(tag: str) -> str:
    found = TAG.fullmatch(tag)
    return found["os"] if found else ""
