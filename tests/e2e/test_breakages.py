"""Each check proves itself: one fact of the image is broken at a time, and exactly that check fails."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.breakages import BREAKAGES, PYTHON, Breakage
from tests.e2e.engine_fixtures import Cannery, Image, started

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine
VERIFY = "/opt/cannery/verify.py"


@pytest.fixture
def container(request: pytest.FixtureRequest, cannery: Cannery, image: Image) -> Iterator[str]:
    breakage: Breakage = request.param
    options = [*breakage.run_options, image.reference, "sleep", "infinity"]
    name = started(cannery, options)
    yield name
    cannery.docker("rm", "--force", name)


@pytest.mark.parametrize(
    ("container", "breakage"), [(b, b) for b in BREAKAGES], ids=[b.name for b in BREAKAGES], indirect=["container"]
)
def test_broken_fact_fails_its_check_alone(cannery: Cannery, container: str, breakage: Breakage) -> None:
    cannery.docker("exec", "--user", "0", container, "sh", "-c", breakage.command)
    done = cannery.docker("exec", container, PYTHON, VERIFY, *breakage.options, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    status = {check["id"]: check["status"] for check in report["checks"]}
    assert status[breakage.check] == breakage.status, report
    others = [i for i, s in status.items() if s == "failed" and not breakage.explains(i)]
    assert not others, report
    assert done.returncode == (1 if breakage.status == "failed" else 0)


def test_every_check_has_a_breakage(image: Image) -> None:
    known = {check["id"] for check in image.table["report"]["checks"]}
    # Imports share one kind of failure: a module that is not there, for each.
    wanted = {i for i in known if not i.startswith("import.")} | {"import.torch-npu-pair"}
    assert wanted <= {b.check for b in BREAKAGES}
    assert any(b.check.startswith("import.") for b in BREAKAGES)
