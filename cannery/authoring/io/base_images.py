"""The images of a CANN version: their configurations in a registry, or their Dockerfiles in a checkout."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cannery.authoring.base_line import TAG, Made, read_dockerfile
from cannery.engine.io.registry import Access, Repository, read_login
from cannery.engine.oci import RefusedError
from cannery.errors import NetworkError, UsageError
from cannery.util.addresses import parse_reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.util.io.pip_settings import PipSettings


def registry_images(text: str, cann: str, settings: PipSettings, env: Mapping[str, str]) -> tuple[dict[str, Made], str]:
    """Return the images of `cann` in the repository of the reference `text`, by tag, and where they were read.

    All tags that are listed, and that of the reference. Raises `NetworkError` where the registry does not answer.
    """
    wanted = parse_reference(text)
    found: dict[str, Made] = {}
    try:
        with Repository(text, Access(settings, partial(read_login, env=env))) as repository:
            listed = [tag for tag in repository.tags() if tag.startswith(f"{cann}-") and TAG.fullmatch(tag)]
            for tag in dict.fromkeys([wanted.tag, *listed]):
                if not TAG.fullmatch(tag):
                    what = f"{tag!r} does not name a chip, an OS and a Python"
                    raise UsageError(what, hint=f"name a tag such as {cann}-910b-ubuntu22.04-py3.11")
                entry = repository.published(tag).entries[0]
                config = repository.config(repository.manifest(entry.manifest).config)
                found[tag] = Made(tuple(config.env.items()))
            digest = repository.published(wanted.tag).digest
    except RefusedError as error:
        raise NetworkError(f"{text}: {error}", hint="`docker login` there, and check the name") from error
    return found, f"configurations of {wanted.registry}/{wanted.repository}, {wanted.tag} at {digest}"


def checkout_images(folder: Path, cann: str) -> tuple[dict[str, Made], str]:
    """Return the images whose Dockerfiles are in `<tag>/Dockerfile` below a folder, and where they were read.

    Raises `UsageError` for a folder without any.
    """
    paths = sorted(folder.glob(f"**/{cann}-*/Dockerfile"))
    found = {path.parent.name: path for path in paths if TAG.fullmatch(path.parent.name)}
    if not found:
        raise UsageError(f"no {cann}-<chip>-<os>-py<python>/Dockerfile in it", where=str(folder))
    texts = {tag: path.read_text(encoding="utf-8", errors="replace") for tag, path in found.items()}
    return {tag: read_dockerfile(text) for tag, text in texts.items()}, f"Dockerfiles of {folder.name}"
