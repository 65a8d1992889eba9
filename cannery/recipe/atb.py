"""ATB's C++ ABI: which of its two builds (…/atb/cxx_abi_0, …/atb/cxx_abi_1) the image's environment has to name.

torch_npu's ABI decides, by release and arch; a CANN image names the one that was usual in its day.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.recipe.recipe import ChosenWheels, Recipe

ATB_HOME = "ATB_HOME_PATH"
BUILD = re.compile(r"(?P<stem>.*/cxx_abi_)(?P<abi>[01])/*")


def deciding(recipe: Recipe) -> ChosenWheels | None:
    """Return the component whose release decides the ABI (torch_npu); None where the set has none."""
    return next((chosen for chosen in recipe.wheels if chosen.component.cxx_abi is not None), None)


def known_abi(recipe: Recipe) -> int | None:
    """Return the ABI of the recipe's torch_npu on its arch; None where there is none, or where it is not known."""
    chosen = deciding(recipe)
    if chosen is None or chosen.component.cxx_abi is None or chosen.version is None:
        return None
    ranges = chosen.component.cxx_abi.by_release.get(chosen.arch, {})
    return next((abi for text, abi in ranges.items() if _holds(text, chosen.version)), None)


def atb_abi(recipe: Recipe) -> int:
    """Return the ABI in force: torch_npu's, or the base image's where that is not known.

    Raises `FindingsError` when the target has no base image and nothing else says it.
    """
    known = known_abi(recipe)
    return recipe.base.tag.atb_abi if known is None else known


def with_abi(env: Mapping[str, str], abi: int) -> dict[str, str]:
    """Return `env` with ATB's build of `abi` in the place of the one that ATB_HOME_PATH names.

    That is ATB_HOME_PATH itself and every path below it in any value. An environment without ATB stays as it is.
    """
    home = BUILD.fullmatch(env.get(ATB_HOME, ""))
    if home is None:
        return dict(env)
    named, wanted = f"{home['stem']}{home['abi']}", f"{home['stem']}{abi}"
    below = re.compile(rf"(?<![^:]){re.escape(named)}(?=[/:]|$)")
    return {name: below.sub(lambda _: wanted, value) for name, value in env.items()}


def _holds(text: str, version: str) -> bool:
    return SpecifierSet(text).contains(version, prereleases=True)
