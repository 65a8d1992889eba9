"""The HTML page of a report, and the stored result of verify for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cannery.verify.io.run import ASKED
from cannery.vocab import Arch

if TYPE_CHECKING:
    from cannery.plan import Plan
    from cannery.report.page import Page

# The page is not in templates/, because those files are part of tags and layers.
TEMPLATES = Path(__file__).parents[1]


def page_html(page: Page, version: str) -> str:
    """Return the page as one self-contained HTML file; `version` is that of Cannery."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2").render(page=page, version=version)


def last_proof(cache: Path, plan: Plan) -> dict[str, Any] | None:
    """Return the newest result of verify for `plan` in `cache`, or None. One of some levels only is the last choice.

    `levels` of the result are those that were asked for, [] for a result of all. Both architectures have the same plan
    digest, so a result with the other one's CANN folder is left out.
    """
    of_levels = None
    others = [f"{arch.machine}-linux/" for arch in Arch if arch is not plan.recipe.target.arch]
    for path in sorted((cache / "verified").glob("*.json"), key=lambda one: one.stat().st_mtime, reverse=True):
        try:
            text = path.read_text(encoding="utf-8")
            value = json.loads(text)
            is_of_plan = (value["profile"], value["plan"]) == (plan.recipe.name, plan.digest)
            if is_of_plan and value["checks"] and value["counts"] and not any(other in text for other in others):
                found = {**value, "levels": list(value[ASKED]["levels"]) if ASKED in value else []}
                if not found["levels"]:
                    return found
                of_levels = of_levels or found
        except (OSError, ValueError, KeyError, TypeError):  # incomplete, or another file
            continue
    return of_levels
