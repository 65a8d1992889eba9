"""A proof: the result of verify on a host with NPUs, as a small file in images/proofs that anyone can contribute.

Each field has a strict form, so that it cannot contain a name, address or path of the host.
"""

import datetime as dt
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints

from cannery.catalog.component import Closed
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from cannery.plan import Plan

UNPROVED = "no NPU proof recorded"
# The levels that need an NPU, and their checks that compute on one.
LEVELS = frozenset({"npu", "train"})
COMPUTED = frozenset({"npu.tensor", "train.step"})

Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$")]
CheckId = Annotated[str, StringConstraints(pattern=r"^(static|import|npu|train)\.[A-Za-z0-9_.-]{1,100}$")]


class ProofCheck(Closed):
    """The result of one check, and its duration in seconds."""

    id: CheckId
    status: Literal["passed", "failed", "warning", "skipped"]
    seconds: float = Field(ge=0, le=1e6)


class Proof(Closed):
    """The content of a proof file."""

    proof: Literal[1] = 1
    date: dt.date = Field(ge=dt.date(2025, 1, 1))
    profile: Word
    target: dict[Literal["cann", "chip", "os", "python", "arch"], Word] = Field(min_length=5)
    plan: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
    image: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    driver: Word
    result: Literal["passed", "failed", "unable"]
    checks: tuple[ProofCheck, ...] = Field(min_length=1, max_length=1000)

    @property
    def words(self) -> str:
        """The text for tables."""
        return f"real NPU, {self.date}, {self.target['chip']}, driver {self.driver}"

    @property
    def name(self) -> str:
        """The path of its file below images/proofs. It is unique, and the newest proof of a profile sorts last."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:8]
        return f"{self.profile}/{self.date}-{self.plan}-{self.target['arch']}-{digest}.json"

    @property
    def text(self) -> str:
        """The content of its file."""
        return self.model_dump_json(indent=1) + "\n"


def make_proof(plan: "Plan", report: Mapping[str, Any], **about: str) -> Proof:
    """Return the proof for a verify report (docs/verify-report.schema.json), without its messages.

    `about` has the date, driver and image. Raises pydantic's `ValueError` if a value does not have the strict form.
    """
    checks = [{name: check.get(name, 0) for name in ProofCheck.model_fields} for check in report["checks"]]
    value = {
        "profile": plan.recipe.name,
        "target": plan.recipe.target.words,
        "plan": plan.digest,
        "result": report["result"],
    }
    return Proof.model_validate({**value, **about, "checks": checks})


def proof_faults(proof: Proof, plan: "Plan", today: str) -> tuple[str, ...]:
    """Return why `proof` does not prove the image of `plan`, the current plan of its profile and target."""
    found = []
    if proof.date > dt.date.fromisoformat(today) + dt.timedelta(days=1):  # the clocks of two hosts differ
        found.append(f"its date, {proof.date}, is after today, {today}")
    if proof.target != plan.recipe.target.words:
        found.append(f"its target is not written as verify writes it: {plan.recipe.target.words}")
    if proof.plan != plan.digest:
        found.append(f"it is of plan {proof.plan}, and {plan.recipe.name} for {plan.recipe.target} has {plan.digest}")
    if plan.recipe.base.kind is not BaseKind.REAL:
        found.append(f"its base is no CANN image: {plan.base_reference}")
    if proof.result != "passed" or any(check.status == "failed" for check in proof.checks):
        found.append("its result is not passed")
    if not any(check.id in COMPUTED and check.status == "passed" for check in proof.checks):
        found.append(f"nothing was computed on an NPU: neither {' nor '.join(sorted(COMPUTED))} passed")
    return tuple(found)
