"""The SPDX document, read and validated by SPDX's own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from factories import catalog, inputs, plan, source_recipe
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from cannery.plan.make import make_plan
from cannery.recipe.recipe import Options
from cannery.report.bill import make_bill
from cannery.report.spdx import spdx_text

if TYPE_CHECKING:
    from pathlib import Path

LICENCES = {"ray": "Apache-2.0", "torch": "BSD-3-Clause AND MIT", "sympy": "BSD", "numpy": ""}


def test_it_is_valid(tmp_path: Path) -> None:
    recipe = source_recipe()
    for made in (plan(), plan(Options(base="standin")), make_plan(recipe, inputs(recipe, socs=("ascend910b1",)))):
        bill = make_bill(made, LICENCES, catalog().hosts)
        file = tmp_path / "bill.spdx.json"
        file.write_text(spdx_text(bill))
        document = parse_file(str(file))
        assert [one.validation_message for one in validate_full_spdx_document(document)] == []
        assert len(document.packages) == len(bill.items) + 1
    file.write_text(file.read_text().replace("NOASSERTION", "no licence at all", 1))
    assert validate_full_spdx_document(parse_file(str(file)))
