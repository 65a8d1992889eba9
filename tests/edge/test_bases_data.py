"""The facts about CANN images in images/bases, as they are committed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cannery.core.base_env import expand_env
from cannery.core.target import Target
from cannery.core.words import Arch, Chip
from cannery.edge.catalog import load_catalog

if TYPE_CHECKING:
    from cannery.core.catalog import Catalog

IMAGES = Path(__file__).parents[2] / "images"
TAG = re.compile(r"(?P<cann>.+?)-(?P<chip>910b|910|a3|310p)-(?P<os>[^-]+)-py(?P<python>.+)")


@pytest.fixture(scope="module", name="catalog")
def _catalog() -> Catalog:
    return load_catalog(IMAGES)


def environments(catalog: Catalog) -> dict[str, dict[str, str]]:
    found = {}
    for line in catalog.bases.values():
        for name, tag in line.tags.items():
            match = TAG.fullmatch(name)
            assert match, name
            target = Target(match["cann"], Chip(match["chip"]), match["os"], match["python"], Arch.ARM64)
            assert (target.cann, target.base_tag) == (line.cann, name)
            assert tag.python.startswith(f"{target.python}.")
            found[name] = expand_env(line, target, tag)
    return found


def test_every_tag_has_an_environment_with_nothing_left_to_fill_in(catalog: Catalog) -> None:
    found = environments(catalog)
    assert len(found) > 60
    assert [name for name, env in found.items() if re.search(r"[{}$]", "".join(env.values()))] == []
    for name, env in found.items():
        line = catalog.bases[name.partition("-")[0]]
        assert env["ASCEND_TOOLKIT_HOME"] == line.toolkit_home
        assert env["ASCEND_OPP_PATH"] == f"{line.toolkit_home}/opp"
        assert env["ATB_HOME_PATH"].endswith(f"cxx_abi_{line.tags[name].atb_abi}")
        assert f"/usr/local/python{line.tags[name].python}/bin" in env["PATH"].split(":")


def test_facts_that_stacks_trip_over(catalog: Catalog) -> None:
    found = environments(catalog)
    assert found["8.3.rc1-910b-ubuntu22.04-py3.11"]["ATB_HOME_PATH"].endswith("/cxx_abi_0")
    assert found["8.1.rc1-a3-ubuntu22.04-py3.10"]["ATB_HOME_PATH"].endswith("/cxx_abi_1")
    assert found["8.5.0-910b-ubuntu22.04-py3.11"]["ASCEND_HOME_PATH"] == "/usr/local/Ascend/cann-8.5.0"
    assert "8.3.rc1-910b-ubuntu22.04-py3.10" not in found
    assert len(catalog.bases["8.5.0"].set_env) == 3


def test_an_empty_segment_stays_where_the_images_have_it(catalog: Catalog) -> None:
    env = environments(catalog)["8.3.rc1-910b-ubuntu22.04-py3.11"]
    assert env["LD_LIBRARY_PATH"].endswith("/usr/local/Ascend/driver/lib64/driver/:")
    assert env["PYTHONPATH"].endswith("/tbe:")
