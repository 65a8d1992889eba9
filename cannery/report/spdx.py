"""Writes a bill of materials as SPDX 2.3 JSON (spdx.github.io/spdx-spec/v2.3), without a library."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from license_expression import ExpressionError, get_spdx_licensing

from cannery import __version__
from cannery.report.bill import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.report.bill import Bill, Item

IMAGE = "SPDXRef-image"
NO_ASSERTION = "NOASSERTION"
# Required fields of SPDX whose values are not known.
UNKNOWN = {
    **dict.fromkeys(("downloadLocation", "licenseConcluded", "licenseDeclared", "copyrightText"), NO_ASSERTION),
    "filesAnalyzed": False,
}


def spdx_text(bill: Bill) -> str:
    """Return the document; the same bill gives the same text."""
    image = {
        "SPDXID": IMAGE,
        "name": bill.profile,
        "versionInfo": bill.tag,
        "primaryPackagePurpose": "CONTAINER",
        "comment": "; ".join(f"{name}: {value}" for name, value in bill.notes.items()),
        **UNKNOWN,
    }
    value = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{bill.profile}:{bill.tag}",
        "documentNamespace": f"urn:uuid:{bill.id}",
        "creationInfo": {"created": f"{bill.made:%Y-%m-%dT%H:%M:%SZ}", "creators": [f"Tool: cannery-{__version__}"]},
        "packages": [image, *map(_package, bill.items)],
        "relationships": list(_relationships(bill)),
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _package(item: Item) -> dict[str, Any]:
    purl = item.purl.to_string() if item.purl else ""
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
    declared = _expression(item.licence)
    notes = {"origin": str(item.origin), **({"commit": item.commit} if item.commit else {}), **item.notes}
    return {
        "SPDXID": _id(item.ref),
        "name": item.name,
        **({"versionInfo": item.version} if item.version else {}),
        "primaryPackagePurpose": "CONTAINER" if item.origin is Origin.BASE else "LIBRARY",
        **UNKNOWN,
        "licenseDeclared": declared,
        **({"licenseComments": f"METADATA: {item.licence}"} if item.licence and declared == NO_ASSERTION else {}),
        **({"checksums": [{"algorithm": "SHA256", "checksumValue": item.sha256}]} if item.sha256 else {}),
        **({"externalRefs": [reference]} if purl else {}),
        "comment": "; ".join(f"{name}: {value}" for name, value in notes.items() if value),
    }


# Reading the list of licences takes about half a second.
_licensing = cache(get_spdx_licensing)


def _expression(text: str) -> str:
    """Return a licence as an SPDX expression, or NOASSERTION if it is not one."""
    try:
        return str(_licensing().parse(text, validate=True, strict=True)) if text else NO_ASSERTION
    except ExpressionError:
        return NO_ASSERTION


def _id(ref: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", ref) if ref else IMAGE


def _relationships(bill: Bill) -> Iterator[dict[str, str]]:
    def related(one: str, kind: str, other: str) -> dict[str, str]:
        return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}

    yield related("SPDXRef-DOCUMENT", "DESCRIBES", IMAGE)
    for item in bill.items:
        yield related(IMAGE, "DESCENDANT_OF" if item.origin is Origin.BASE else "CONTAINS", _id(item.ref))
    for ref, asked in bill.depends.items():
        yield from (related(_id(ref), "DEPENDS_ON", _id(one)) for one in asked)
