"""The page of `report` about an image: facts, a treemap, the last build, tables; as Markdown or for HTML."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cannery.build.stages import words_for
from cannery.compat.subject import RANK
from cannery.render.render import stage_name
from cannery.report.difference import Table, ends, markdown_lines, prose, table_lines, tables
from cannery.report.treemap import Box, treemap
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.build.stages import Span
    from cannery.compat.subject import Finding
    from cannery.plan import Plan
    from cannery.report.bill import Bill, Item
    from cannery.report.difference import Difference
    from cannery.report.treemap import Tile


FRAME = Box(0, 0, 1000, 520)
PROOF = {
    BaseKind.STANDIN: "stand-in base, no CANN: the stack fits together; nothing is computed on an NPU",
    BaseKind.REAL: "CANN image",
    BaseKind.CUSTOM: "a base of your own",
}
NOT_VERIFIED = "no result of this plan on this host"


class Known(NamedTuple):
    """Stored on this host: the last result of verify (docs/verify-report.schema.json), and spans of the last build.

    `levels` of the result are those that were asked for, [] for all.
    """

    proof: Mapping[str, Any] | None = None
    spans: Sequence[Span] = ()


@dataclass(frozen=True)
class Page:
    """The content of the page. `facts` are (name, text); `changes` is the difference to an older image, if any."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    tiles: tuple[Tile, ...]
    changes: Difference | None
    bars: tuple[Bar, ...] = ()

    @property
    def changed(self) -> tuple[Table, ...]:
        """A table for each section of the changes."""
        return tuple(tables(self.changes)) if self.changes else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the changes."""
        return tuple(ends(self.changes)) if self.changes else ()


def make_page(
    plan: Plan,
    bill: Bill,
    findings: Sequence[Finding],
    known: Known,
    changes: Difference | None,
) -> Page:
    """Return the page about the image of `plan`; `changes` is the difference to an older image."""
    proof, spans = known
    sizes = {package.name: package.size for package in plan.lock.packages}
    wheels = [item for item in bill.items if "file" in item.notes]
    groups: dict[str, dict[str, int]] = {}
    for item in wheels:
        groups.setdefault(item.notes["layer"].removesuffix("-deps"), {})[item.name] = sizes[item.name]
    ranked = sorted(findings, key=lambda one: RANK[one.severity])
    found = tuple((f"{one.severity} {one.code}", one.what, one.why, one.fix) for one in ranked)
    checks = tuple((one["id"], one["status"], one["message"]) for one in (proof or {"checks": ()})["checks"])
    listed = (
        Table("Findings", ("", "what", "why", "fix"), found),
        _components(plan, bill),
        *_bounds(plan),
        Table("Verify", ("check", "result", "message"), checks, open=False),
        *_package_lists(plan, wheels, sizes),
    )
    facts = dict(_facts(plan, findings, proof, sum(sizes[item.name] for item in wheels)))
    return Page(
        plan.reference,
        tuple({**facts, "last build": timeline_words(plan, spans)}.items()),
        tuple(table for table in listed if table.rows),
        tuple(treemap(groups, FRAME)),
        changes,
        tuple(timeline(plan, spans)),
    )


def _facts(
    plan: Plan, findings: Sequence[Finding], proof: Mapping[str, Any] | None, size: int
) -> Iterator[tuple[str, str]]:
    target, profile = plan.recipe.target, plan.recipe.profile
    yield "profile", f"{plan.recipe.name}: {profile.summary}"
    yield "target", f"CANN {target.cann}, {target.chip}, {target.os}, Python {target.python}, {target.arch}"
    yield "base", f"{plan.base_reference} ({PROOF[plan.recipe.base.kind]})"
    counts = ", ".join(f"{count} {word}" for word, count in proof["counts"].items() if count) if proof else ""
    asked = ", ".join(proof.get("levels", ())) if proof else ""
    level = f" (only level {asked})" if asked else ""
    yield "verify", f"{proof['result']} on this host{level}: {counts}" if proof else NOT_VERIFIED
    yield "layers", f"{len(plan.layers)} on the base, {size / 1e6:.0f} MB of wheels"
    severities = Counter(str(one.severity) for one in findings)
    yield "findings", ", ".join(f"{count} {word}{'s'[: count > 1]}" for word, count in severities.items()) or "none"
    yield "other versions", plan.recipe.changes
    yield "forced", ", ".join(plan.forced)
    yield "documents", "; ".join(profile.documents)


def _components(plan: Plan, bill: Bill) -> Table:
    items = {item.notes.get("component", item.name): item for item in bill.items}
    rows = []
    for chosen in plan.recipe.chosen:
        item = items.get(chosen.name) or items.get(chosen.package)
        version = chosen.full_version or (item.version if item else "") or "of the base's OS"
        about = (item.licence, item.notes.get("index", "")) if item else ("", "")
        rows.append((chosen.name, version, (chosen.commit or "")[:12], *about, chosen.component.summary, chosen.reason))
    return Table("Components", ("name", "version", "commit", "licence", "index", "what it is", "reason"), tuple(rows))


def _bounds(plan: Plan) -> Iterator[Table]:
    profile = plan.recipe.profile
    kinds = {"constraint": profile.constraints, "override": profile.overrides, "exclude": profile.excludes}
    rows = [(one.requirement, kind, one.reason) for kind, listed in kinds.items() for one in listed]
    rows += [(f"{one.name} {one.version}", "substitute", one.reason) for one in plan.recipe.substitutes]
    yield Table("Bounds and overrides", ("requirement", "kind", "reason"), tuple(rows))
    patches = tuple((step.name, one.origin) for step in plan.sources for one in step.patched_by)
    yield Table("Patches", ("source", "from"), patches)


def _package_lists(plan: Plan, wheels: Sequence[Item], sizes: Mapping[str, int]) -> Iterator[Table]:
    head = ("name", "version", "MB", "layer", "licence", "index", "required by")
    rows = []
    for one in sorted(wheels, key=lambda item: item.name):
        via = ", ".join(one.asked_by).replace("<profile>", "the profile")
        megabytes = f"{sizes[one.name] / 1e6:.1f}"
        rows.append((one.name, one.version, megabytes, one.notes["layer"], one.licence, one.notes["index"], via))
    yield Table("Packages", head, tuple(rows), open=False)
    layers = tuple((one.name, one.digest, f"{one.wheel_bytes / 1e6:.1f}", one.summary) for one in plan.layers)
    yield Table("Layers", ("name", "digest", "MB", "what is in it"), layers, open=False)
    yield Table("Environment", ("variable", "value"), tuple(sorted(plan.env.items())), open=False)


def page_markdown(page: Page) -> str:
    """Return the page as Markdown, for a pull request, without the tables that are folded in HTML."""
    lines = [f"# {prose(page.title)}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {prose(text)} |" for name, text in page.facts if text]
    lines += ["", *markdown_lines(page.changes)] if page.changes else []
    lines += [line for table in page.tables if table.open for line in table_lines(table)]
    return "\n".join(lines) + "\n"


# The left end of the bars and the greatest length of one, in units of the drawing.
LEFT, WIDTH = 130.0, 220.0


@dataclass(frozen=True)
class Bar:
    """One bar of the timeline; `x` is its left end."""

    label: str
    x: float
    width: float
    seconds: float


def timeline(plan: Plan, spans: Sequence[Span]) -> Iterator[Bar]:
    """Yield the bars in the order of their start. A stage of less than a hundredth of the whole time has none."""
    names = {stage_name(layer): layer.name for layer in plan.layers}
    first, total = min((one.start for one in spans), default=0.0), _seconds(spans)
    for one in sorted(spans, key=lambda span: span.start):
        if one.seconds * 100 >= total:
            x, width = ((part / total * WIDTH) if total else 0.0 for part in (one.start - first, one.seconds))
            yield Bar(names.get(one.stage) or words_for(one.stage, {}), LEFT + x, width, one.seconds)


def timeline_words(plan: Plan, spans: Sequence[Span]) -> str:
    """Return a text about the last build; "" if it is not known."""
    if not spans:
        return ""
    took = f"{_seconds(spans):.1f} s"
    if plan.recipe.pins and any(one.stage == "trial" for one in spans):
        return f"{took}: one layer on the image of the locked set"
    made = {one.stage for one in spans} & {stage_name(layer) for layer in plan.layers}
    rest = ", the others reused" if len(made) < len(plan.layers) else ""
    return f"{took}: {len(made)} of {len(plan.layers)} layers made{rest}"


def _seconds(spans: Sequence[Span]) -> float:
    return max(one.start + one.seconds for one in spans) - min(one.start for one in spans) if spans else 0.0
