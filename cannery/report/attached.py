"""The page about an image in a registry, of the documents that are attached to it. The image itself is not read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cannery.report.bill import Origin
from cannery.report.page import PROOF, Page, page_markdown
from cannery.report.tables import Table
from cannery.ship.referrers import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.ship.referrers import Document

TITLES: dict[str, str] = {
    Origin.BASE: "Base",
    Origin.SYSTEM: "Packages of the system",
    Origin.WHEEL: "Wheels",
    Origin.SDIST: "Source distributions",
    Origin.SOURCE: "Sources",
}
# What the properties of Cannery's own are called in CycloneDX.
OWN = "cannery:"


def attached_page(
    name: str, digest: str, referrers: Sequence[Mapping[str, Any]], documents: Sequence[Document]
) -> Page:
    """Return what is shown of the image `name` with the digest of its manifest.

    Raises `ValueError` for documents that are not such as Cannery attaches.
    """
    try:
        values = {one.kind: json.loads(one.text) for one in documents}
        bill, proof = values.get(Kind.CYCLONEDX, {}), values.get(Kind.PROVENANCE, {})
        facts = (("digest", digest), *_facts(bill, proof, digest))
        listed = Table("Attached", ("type", "digest"), tuple((_kind(one), str(one["digest"])) for one in referrers))
        tables = (listed, *_parts(bill), _used(proof))
        page = Page(name, facts, tuple(table for table in tables if table.rows), (), None)
        page_markdown(page).encode()  # fails for what is no text, or half of a UTF-16 pair, which no file takes
    except (AttributeError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ValueError(f"a field is missing or of a wrong type: {error}") from error
    return page


def _kind(referrer: Mapping[str, Any]) -> str:
    return str(referrer.get("artifactType") or referrer.get("mediaType"))


def _facts(bill: Mapping[str, Any], proof: Mapping[str, Any], digest: str) -> Iterator[tuple[str, str]]:
    if bill:
        image = bill["metadata"]["component"]
        yield "profile", f"{image['name']} {image.get('version', '')}"
        notes = _properties(image)
        kinds = {str(kind): words for kind, words in PROOF.items()}
        yield from {**notes, "base": kinds.get(notes.get("base", ""), "")}.items()
    if proof:
        names = [one["digest"]["sha256"] for one in proof["subject"]]
        yield "provenance", "of this image" if digest.removeprefix("sha256:") in names else "of ANOTHER image"
        made, run = proof["predicate"]["buildDefinition"], proof["predicate"]["runDetails"]["builder"]
        asked = made["externalParameters"]
        yield "made by", " ".join((run["id"], *(f"{tool} {version}" for tool, version in run["version"].items())))
        yield "other versions", str(asked.get("other", ""))
        yield "forced", ", ".join(asked.get("forced", ()))


def _parts(bill: Mapping[str, Any]) -> Iterator[Table]:
    """Give a table of the parts of each origin: the base, packages of the system, wheels, sources."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for part in bill.get("components", ()):
        notes = _properties(part)
        licence = " ".join(one.get("expression") or _name(one["license"]) for one in part.get("licenses", ()))
        proof = next((one["content"] for one in part.get("hashes", ())), part.get("purl", ""))
        row = (
            part["name"],
            part.get("version", ""),
            licence,
            notes.get("index", ""),
            notes.get("patched by", ""),
            proof,
        )
        found.setdefault(notes.get("origin", "part"), []).append(row)
    head = ("name", "version", "licence", "index", "patched by", "SHA-256 or package URL")
    for origin, rows in sorted(found.items()):
        filled = [column for column in range(len(head)) if any(row[column] for row in rows)]
        shown = tuple(tuple(row[column] for column in filled) for row in sorted(rows))
        yield Table(TITLES.get(origin, origin), tuple(head[column] for column in filled), shown)


def _used(proof: Mapping[str, Any]) -> Table:
    used = proof["predicate"]["buildDefinition"]["resolvedDependencies"] if proof else ()
    rows = (
        (one["name"], " ".join(f"{kind}:{text}" for kind, text in one.get("digest", {}).items()), one["uri"])
        for one in used
    )
    return Table("Made from", ("file", "digest", "package URL"), tuple(rows), open=False)


def _name(licence: Mapping[str, Any]) -> str:
    return str(licence.get("id") or licence.get("name"))


def _properties(part: Mapping[str, Any]) -> dict[str, str]:
    listed = part.get("properties", ())
    return {one["name"].removeprefix(OWN): one["value"] for one in listed if one["name"].startswith(OWN)}
