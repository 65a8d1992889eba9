"""The provenance of an image: an in-toto statement with SLSA's predicate (slsa.dev/spec/v1.0/provenance).

All of it comes from the plan. It has names of indexes and bases, but no mirror addresses, paths or settings of this
host. A signature, not this text, proves who built the image.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cannery.report.bill import Origin
from cannery.util.addresses import split_tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.plan import Plan
    from cannery.report.bill import Bill, Item

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
# docs/guides/security.md describes both.
BUILD_TYPE, BUILDER = "urn:cannery:image:1", "urn:cannery:builder"


def provenance_text(plan: Plan, bill: Bill, reference: str, digest: str, version: str) -> str:
    """Return the statement about the image of `plan`: its reference in a registry, and the digest of its manifest.

    `bill` is of the same plan; `version` is that of the Cannery that made the image.
    """
    name, tag = split_tag(reference)
    recipe = plan.recipe
    asked = {
        "profile": recipe.name,
        "target": recipe.target.words,
        "base": str(recipe.base.kind),
        **({"other": recipe.changes} if recipe.changes else {}),
        **({"forced": list(plan.forced)} if plan.forced else {}),
    }
    layers = {layer.name: layer.digest for layer in plan.layers}
    value = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": asked,
                "internalParameters": {"plan": plan.digest, "tag": tag, "epoch": plan.epoch, "layers": layers},
                "resolvedDependencies": [*map(_used, bill.items), *_tools(plan)],
            },
            "runDetails": {"builder": {"id": BUILDER, "version": {"cannery": version}}},
        },
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _used(item: Item) -> dict[str, Any]:
    """Return a resolved dependency: one part of the image. A user's own tree has only the digest of its content."""
    tree = item.notes.get("own tree", "")
    of_base = item.version.removeprefix("sha256:") if item.origin is Origin.BASE and ":" in item.version else ""
    sha256 = item.sha256 or of_base
    digests = {"sha256": sha256, "gitCommit": item.commit if not tree else "", "cannery-tree": tree}
    digest = {kind: text for kind, text in digests.items() if text}
    return {
        "name": item.notes.get("file") or item.notes.get("component") or item.name,
        "uri": item.purl.to_string() if item.purl else f"urn:cannery:{item.origin}:{item.name}",
        **({"digest": digest} if digest else {}),
        "annotations": {"origin": str(item.origin), **{n: v for n, v in item.notes.items() if n in KEPT}},
    }


# The notes of a part that a provenance has.
KEPT = ("index", "patched by", "changed")


def _tools(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the wheels that build sources and are not in the image."""
    for package in plan.tools.packages:
        yield {
            "name": package.file,
            "uri": f"pkg:pypi/{package.name}@{package.version}",
            **({"digest": {"sha256": package.sha256}} if package.complete else {}),
            "annotations": {"origin": "build tool", "index": package.index},
        }
