"""A proof: what verify found on a host with NPUs, as a small file that anyone can send and images/proofs keeps.

Each field has a closed form, so that no name, address or path of a host can be in one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints

from cannery.catalog.component import Closed
from cannery.recipe.recipe import Options
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from cannery.plan.plan import Plan

STANDIN_ONLY = "stand-in only"
# The levels that an NPU is needed for, and the checks of theirs that compute on one.
LEVELS = frozenset({"npu", "train"})
COMPUTED = frozenset({"npu.tensor", "train.step"})

Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9][0-9A-Za-z.]{0,30}$")]
CheckId = Annotated[str, StringConstraints(pattern=r"^(static|import|npu|train)\.[A-Za-z0-9_.-]{1,100}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
PlanDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
Day = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")]


class ProofTarget(Closed):
    """What the image is for."""

    cann: Version
    chip: Word
    os: Word
    python: Version
    arch: Arch


class ProofCheck(Closed):
    """How one check ended, and the seconds that it took."""

    id: CheckId
    status: Literal["passed", "failed", "warning", "skipped"]
    seconds: float = Field(ge=0, le=1e6)


class Proof(Closed):
    """The file."""

    proof: Literal[1] = 1
    date: Day
    profile: Word
    target: ProofTarget
    plan: PlanDigest
    image: Digest
    driver: Version
    result: Literal["passed", "failed", "unable"]
    checks: tuple[ProofCheck, ...] = Field(min_length=1, max_length=1000)

    @property
    def words(self) -> str:
        """What tables have of it."""
        return f"real NPU, {self.date}, {self.target.chip}, driver {self.driver}"

    @property
    def name(self) -> str:
        """The path of its file below images/proofs: the newest of a profile is the last."""
        return f"{self.profile}/{self.date}-{self.plan}-{self.target.arch}.json"

    @property
    def options(self) -> Options:
        """The target as the command line has it."""
        return Options(**self.target.model_dump())


def make_proof(plan: "Plan", report: Mapping[str, Any], seconds: Mapping[str, float], **about: str) -> Proof:
    """Return the proof of a verify report (docs/verify-report.schema.json): no message of it, which can name anything.

    `about` is its date, driver and image. Raises `ValueError` (pydantic's) for one whose form is not known.
    """
    target = plan.recipe.target
    checks = [
        {"id": check["id"], "status": check["status"], "seconds": round(seconds.get(check["id"], 0.0), 1)}
        for check in report["checks"]
    ]
    value = {
        **about,
        "profile": plan.recipe.name,
        "target": {name: getattr(target, name) for name in ProofTarget.model_fields},
        "plan": plan.digest,
        "result": report["result"],
        "checks": checks,
    }
    return Proof.model_validate(value)


def proof_faults(proof: Proof, plan: "Plan") -> tuple[str, ...]:
    """Return why `proof` does not prove the image of `plan`, which its profile and target have here."""
    found = []
    if proof.plan != plan.digest:
        found.append(f"it is of plan {proof.plan}, and {plan.recipe.name} for {plan.recipe.target} has {plan.digest}")
    if plan.recipe.base.kind is not BaseKind.REAL:
        found.append(f"its base is no CANN image: {plan.base_reference}")
    failed = [check.id for check in proof.checks if check.status == "failed"]
    if proof.result != "passed" or failed:
        found.append(": ".join(("its result is not passed", ", ".join(failed))).removesuffix(": "))
    if not any(check.id in COMPUTED and check.status == "passed" for check in proof.checks):
        found.append(f"nothing was computed on an NPU: neither {' nor '.join(sorted(COMPUTED))} passed")
    return tuple(found)


def proved_words(proofs: Iterable[Proof], is_current: Callable[[Proof], bool]) -> str:
    """Return what tables have of proofs, the newest first: of the plan as it is now, else of an earlier one."""
    every = tuple(proofs)
    current = next(filter(is_current, every), None)
    if current:
        return current.words
    return f"{every[0].words}, of an earlier plan ({every[0].plan})" if every else STANDIN_ONLY
