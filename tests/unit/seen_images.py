"""Made-up images of a user's own, as they are read: the packages of the profile `stack`, and what a test changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import factories

from cannery.against.image import Files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import Catalog

HOME = "/usr/local/python3.11.14"
SITE = f"{HOME}/lib/python3.11/site-packages"
CANN = "/usr/local/Ascend/cann-8.5.0"
JEMALLOC = "/usr/local/lib/libjemalloc.so.2"
ENV = {
    "PATH": f"{HOME}/bin:/usr/bin",
    "ASCEND_TOOLKIT_HOME": CANN,
    "LD_PRELOAD": JEMALLOC,
    "RAY_OPTIONS": '--say "it\'s $here"',
    "MORE_PATH": "/usr/local/Ascend/lib64:/opt/more",
}
# The versions of factories.packages().
STACK = {
    "antlr4": "4.9.3",
    "numpy": "2.3.0",
    "ray": "2.50.0",
    "sympy": "1.14.0",
    "torch": "2.9.0+cpu",
    "torch_npu": "2.9.0",
}


def metadata(packages: Mapping[str, str], site: str = SITE) -> dict[str, str]:
    """The metadata of installed packages, name → version, as written by installers."""
    return {
        f"{site}/{name}-{version}.dist-info/METADATA": f"Metadata: 2.1\nName: {name}\nVersion: {version}\n\nText\n"
        for name, version in packages.items()
    }


def origin(name: str, version: str, **value: object) -> dict[str, str]:
    """What an installer notes of where a package came from."""
    return {f"{SITE}/{name}-{version}.dist-info/direct_url.json": json.dumps(value)}


def system(cann: str = "8.5.0") -> dict[str, str]:
    """The files below Python: CANN's version and the OS's name."""
    return {
        f"/usr/local/Ascend/cann-{cann}/x86_64-linux/install.info": f"package=toolkit\nversion={cann}\n",
        "/usr/lib/os-release": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n',
    }


def seen(packages: Mapping[str, str] = STACK, texts: Mapping[str, str] | None = None, **changes: object) -> Files:
    """An image that equals the profile `stack` of `factories`, where nothing is changed."""
    value = {
        "arch": "amd64",
        "env": ENV,
        "texts": {**system(), **metadata(packages), **(texts or {})},
        "links": {"/etc/os-release": "../usr/lib/os-release", JEMALLOC: "/usr/lib/x86_64/libjemalloc.so.2"},
        "present": frozenset({"/usr/lib/x86_64/libjemalloc.so.2"}),
    }
    return Files(**{**value, **changes})


def bases() -> Catalog:
    """The catalog whose bases say where CANN's versions stand."""
    return factories.catalog()
