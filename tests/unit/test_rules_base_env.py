"""What a profile or a component sets against the base's own ENV (S6)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from checkouts import FROZEN
from factories import subject

from cannery.catalog.io.read import load_catalog
from cannery.compat.rules.components import base_env
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch, Severity

if TYPE_CHECKING:
    from cannery.compat.subject import Finding

CATALOG = load_catalog(FROZEN)
HOME = "/usr/local/Ascend/cann-8.5.0"


def judge(env: dict[str, str], *, of_component: bool = False, **options: str) -> list[Finding]:
    profile, component = CATALOG.profiles["quickstart"], CATALOG.components["jemalloc"]
    changed = replace(
        CATALOG,
        profiles={"quickstart": profile.model_copy(update={} if of_component else {"env": env})},
        components={
            **CATALOG.components,
            "jemalloc": component.model_copy(update={"env": env} if of_component else {}),
        },
    )
    return list(base_env(subject(select(changed, "quickstart", Options(**options), Arch.ARM64), changed)))


def severities(env: dict[str, str], **options: str) -> list[Severity]:
    return [finding.severity for finding in judge(env, **options)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/opt/mine/bin"),
        ("PATH", "$PATH:/opt/mine/bin"),
        ("PATH", "/opt/mine${PATH}"),
        ("LD_LIBRARY_PATH", "/opt/mine/lib:${PATH}"),
        ("PYTHONPATH", ""),
        ("PYTHONHOME", "/opt/mine"),
        ("ASCEND_TOOLKIT_HOME", "/opt/cann"),
        ("ASCEND_OPP_PATH", "${ASCEND_TOOLKIT_HOME}/other"),
        ("ASCEND_HOME_PATH", ""),
        ("ATB_HOME_PATH", "/usr/local/Ascend/nnal"),
        ("VIRTUAL_ENV", "/opt/other"),
    ],
)
def test_a_list_or_place_of_the_base_that_is_replaced_is_an_error(name: str, value: str) -> None:
    (finding,) = judge({name: value})
    assert (finding.severity, finding.code) == (Severity.ERROR, "base-env")
    assert finding.what.startswith(f"images/profiles/quickstart.yaml sets {name}=")
    (finding,) = judge({name: value}, of_component=True)
    assert finding.what.startswith(f"component jemalloc sets {name}=")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/opt/mine/bin:${PATH}"),
        ("LD_LIBRARY_PATH", "${LD_LIBRARY_PATH}:/opt/mine/lib"),
        ("ASCEND_OPP_PATH", "${ASCEND_TOOLKIT_HOME}/opp"),
        ("ASCEND_HOME_PATH", HOME),
        ("VIRTUAL_ENV", "${VIRTUAL_ENV}"),
        ("ATB_STREAM_SYNC_EVERY_KERNEL_ENABLE", "0"),
        ("MY_PATH", "/opt/mine"),
        ("ASCEND_OF_MINE", "/usr/local/Ascend/mine"),
    ],
)
def test_what_keeps_the_bases_values_is_well(name: str, value: str) -> None:
    assert judge({name: value}) == []
    assert judge({name: value}, of_component=True) == []


def test_a_scalar_of_the_base_may_be_set_with_a_note() -> None:
    (finding,) = judge({"ATB_STREAM_SYNC_EVERY_KERNEL_ENABLE": "1"})
    assert finding.severity is Severity.NOTE
    assert finding.what.endswith("sets ATB_STREAM_SYNC_EVERY_KERNEL_ENABLE=1; the base has it as 0")


def test_another_line_of_cann_has_its_own_places() -> None:
    assert severities({"ASCEND_HOME_PATH": HOME}, cann="8.3.rc1") == [Severity.ERROR]


def test_the_lists_are_held_where_the_base_is_not_known() -> None:
    assert severities({"PATH": "/opt/mine", "ASCEND_HOME_PATH": "/x"}, os="beos1") == [Severity.ERROR]
