"""`verify --record`: the proof of a run on a host with NPUs, as a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cannery.commands.proofs import first_fault, text_of
from cannery.commands.run import HOST_ROOT, refuse_other_chip
from cannery.errors import UnableError, UsageError
from cannery.host.io.look import read_tree
from cannery.util.io.files import write_atomic
from cannery.util.io.write_errors import unwritable
from cannery.verify.proof import LEVELS, make_proof
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.plan.plan import Plan
    from cannery.verify.lines import Check


class Record:
    """The proof of one run of verify: it takes each check as it ends, and the seconds since the one before.

    Raises `UsageError` or `UnableError` at the start where there is nothing to record.
    """

    def __init__(self, arguments: argparse.Namespace, catalog: Catalog, plan: Plan) -> None:
        if arguments.image or not LEVELS.intersection(arguments.level):
            what = "--record is of the image of PROFILE, at a level that needs an NPU"
            raise UsageError(what, hint="--level npu or --level train, and no --image")
        if plan.recipe.base.kind is not BaseKind.REAL:
            raise UsageError("--record: no NPU works in an image without CANN", hint="leave out --base")
        refuse_other_chip(catalog, plan.recipe)
        self.driver = read_tree(HOST_ROOT, (), None).driver.get("Version", "")
        if not self.driver:
            what = "--record: this host has no NPU driver, or you cannot read its version"
            raise UnableError(what, hint=f"build.py doctor {plan.recipe.name}")
        self.path, self.today, self.plan = arguments.record, arguments.today, plan
        self._seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def check(self, check: Check) -> None:
        """Take one check that has ended."""
        now = time.monotonic()
        self._seconds[check["id"]], self._last = now - self._last, now

    def write(self, image: str, report: Mapping[str, Any]) -> None:
        """Write the proof that a report is of an image, by its id. Raises `UnableError`."""
        try:
            proof = make_proof(self.plan, report, self._seconds, date=self.today, driver=self.driver, image=image)
            write_atomic(Path(self.path), text_of(proof))
        except ValidationError as error:
            raise UnableError(f"there is no proof of this: {first_fault(error)}", hint="please report it") from error
        except OSError as error:
            raise unwritable(error, self.path, "name another file with --record") from error
