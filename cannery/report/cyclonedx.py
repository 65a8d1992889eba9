"""Writes a bill of materials as CycloneDX 1.6 JSON (ECMA-424), with cyclonedx-python-lib. Only `sbom` imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Commit, Component, ComponentType, Pedigree
from cyclonedx.model.license import LicenseAcknowledgement
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6

from cannery import __version__
from cannery.report.bill import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.report.bill import Bill, Item

TYPES = {Origin.BASE: ComponentType.CONTAINER}


def cyclonedx_text(bill: Bill) -> str:
    """Return the document; the same bill gives the same text."""
    image = Component(
        name=bill.profile,
        version=bill.tag,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        properties=_properties(bill.notes),
    )
    tools = ToolRepository(components=[Component(name="cannery", version=__version__, type=ComponentType.APPLICATION)])
    bom = Bom(serial_number=bill.id, metadata=BomMetaData(timestamp=bill.made, component=image, tools=tools))
    components = {item.ref: _component(item) for item in bill.items}
    bom.components.update(components.values())
    for ref, asked in bill.depends.items():
        bom.register_dependency(components[ref] if ref else image, [components[one] for one in asked])
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _component(item: Item) -> Component:
    declared = LicenseAcknowledgement.DECLARED
    licence = (
        LicenseFactory().make_from_string(item.licence, license_acknowledgement=declared) if item.licence else None
    )
    return Component(
        name=item.name,
        version=item.version or None,
        type=TYPES.get(item.origin, ComponentType.LIBRARY),
        bom_ref=item.ref,
        purl=item.purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=item.sha256)] if item.sha256 else (),
        licenses=[licence] if licence else (),
        pedigree=Pedigree(commits=[Commit(uid=item.commit)]) if item.commit else None,
        properties=_properties({"origin": str(item.origin), **item.notes}),
    )


def _properties(notes: Mapping[str, str]) -> list[Property]:
    return [Property(name=f"cannery:{name}", value=value) for name, value in notes.items() if value]
