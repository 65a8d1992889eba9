"""Made-up images of a user's own, as they are read: the packages of the profile `stack`, and what a test changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import factories

from cannery.against.compare import Image, read_facts
from cannery.engine.oci import EngineImage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOME = "/usr/local/python3.11.14"
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
UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n'


def toolkit(cann: str = "8.5.0", *, is_used: bool = False) -> dict[str, list[object]]:
    """The file with the version of a CANN, and whether the environment names that one."""
    path = f"/usr/local/Ascend/cann-{cann}/x86_64-linux/install.info"
    return {path: [is_used, f"package=toolkit\nversion={cann}\n"]}


def seen(
    packages: Mapping[str, str] = STACK,
    *,
    requires: Mapping[str, Sequence[str]] | None = None,
    texts: Mapping[str, str] | None = None,
    **changes: object,
) -> Image:
    """An image that equals the profile `stack` of `factories`, where nothing is changed.

    `changes` are to its `env`, or to what `cannery.against.io.look` prints; `rows` are all of its packages.
    """
    env = changes.pop("env", ENV)
    assert isinstance(env, dict)
    value: dict[str, object] = {
        "python": "3.11",
        "prefix": HOME,
        "packages": changes.pop("rows", None)
        or [[name, version, list((requires or {}).get(name, ()))] for name, version in packages.items()],
        "texts": {"/usr/lib/os-release": UBUNTU, **(texts or {})},
        "versions": toolkit(),
    }
    config = EngineImage("sha256:" + "0" * 64, "amd64", 7, (), {}, (), env=env)
    return read_facts(config, {**value, **changes}, factories.catalog().bases)
