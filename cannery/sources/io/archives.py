"""The tarballs of a plan on this host, stored by hash: `<cache>/archives/<sha[:2]>/<sha>/<file name>`.

As with wheels, a file gets that name only after its size and sha256 were checked: a file of the right size is used as
it is, without the network. A file of the user's own (`WHEELHOUSE`, find-links) comes before the hosts.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cannery.errors import FindingsError, NetworkError
from cannery.lock.io.wheels import drop_damaged
from cannery.util.io.files import sha256_file
from cannery.util.io.locks import held
from cannery.util.io.write_errors import is_of_files, unwritable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from cannery.catalog.catalog import Host
    from cannery.errors import CanneryError
    from cannery.plan.plan import Plan
    from cannery.plan.steps import ArchiveStep
    from cannery.util.io.downloads import Downloads
    from cannery.util.io.pip_settings import PipSettings


def fetch_archives(downloads: Downloads, hosts: Mapping[str, Host], plan: Plan) -> dict[str, Path]:
    """Return {path in the rendered folder: file} of every tarball of `plan`; missing files are downloaded.

    `hosts` is images/hosts.yaml. Raises `FindingsError` for a file that is not the one of the catalog, `NetworkError`
    when no host has it or none answers (the message names each), `UnableError` when the store cannot be written.
    """
    found = {}
    for step in plan.archives:
        path = archive_path(step, downloads.cache)
        if not _is_there(step, path):
            with held(path.with_name(".lock"), lambda: None):
                if not _is_there(step, path):
                    _fetch(downloads, step, path, tuple(_urls(hosts, plan, step)))
        found[f"archives/{step.file}"] = path
    return found


def archive_path(step: ArchiveStep, cache: Path) -> Path:
    """Return where the tarball is once it has been downloaded."""
    return cache / "archives" / step.sha256[:2] / step.sha256 / step.file


def damaged_archives(steps: Iterable[ArchiveStep], cache: Path) -> tuple[ArchiveStep, ...]:
    """Remove stored tarballs that are not the catalog's any more, and return their steps: for after a failed build."""
    return tuple(step for step in steps if drop_damaged(archive_path(step, cache), step.sha256))


def _is_there(step: ArchiveStep, path: Path) -> bool:
    try:
        return path.stat().st_size == step.size
    except OSError:
        return False


def _urls(hosts: Mapping[str, Host], plan: Plan, step: ArchiveStep) -> Iterator[str]:
    """Give the addresses of the tarball, in the component's order of hosts."""
    (chosen,) = (one for one in plan.recipe.archives if one.name == step.name)
    for host, repository in chosen.component.hosts.items():
        if chosen.archive is None or hosts[host].files is None:
            continue
        for pattern in (*hosts[host].file_mirrors, hosts[host].files or ""):
            yield pattern.replace("{repository}", repository).replace("{file}", chosen.archive.file)


def _fetch(downloads: Downloads, step: ArchiveStep, path: Path, urls: tuple[str, ...]) -> None:
    """Bring one tarball to `path`: a file of the user's own, or what the first host has that answers."""
    from cannery.lock.io.download import Download  # noqa: PLC0415 - imports network libraries
    from cannery.util.io.http import HostSession  # noqa: PLC0415

    own = _own(downloads, step)
    if own is None:
        downloads.say(f"fetching {step.file}: {step.size / 1e6:.1f} MB")
    settings, stop = downloads.settings(), threading.Event()
    session = HostSession(settings)
    download = Download(
        *(path, step.sha256, step.size, session, stop),
        progress=lambda _received: None,
        say=lambda text: downloads.say(settings.redact(text)),
    )
    try:
        if download.from_first((url, url) for url in ((own.as_uri(),) if own else urls)):
            return
    except OSError as error:
        if not is_of_files(error):
            raise
        raise unwritable(error, error.filename or path) from error
    raise _missing(step, settings, download.wrong, download.reasons)


def _missing(step: ArchiveStep, settings: PipSettings, wrong: list[str], reasons: list[str]) -> CanneryError:
    where = f"images/components/{step.name}.yaml"
    if wrong:
        return FindingsError(
            f"{step.file} is not the file of {step.name} {step.version}, which has sha256:{step.sha256}; "
            + settings.redact("; ".join(wrong)),
            where=where,
            hint="somebody has changed the file, or the hash in the catalog: compare it with what others have of it",
        )
    return NetworkError(
        f"{step.file} cannot be downloaded: {settings.redact('; '.join(reasons))}",
        where=where,
        hint=f"fetch it elsewhere (sha256:{step.sha256}), and name its folder with WHEELHOUSE=",
    )


def _own(downloads: Downloads, step: ArchiveStep) -> Path | None:
    """Return the user's own file of that name and hash; one with another hash is reported and not used."""
    from cannery.lock.io.places import extra_places  # noqa: PLC0415

    for place in extra_places(downloads.settings()):
        path = place.folder / step.file if place.links and place.folder else None
        if path is None or not path.is_file():
            continue
        if sha256_file(path) == step.sha256:
            return path
        downloads.say(f"note: {path} is not the {step.file} of the catalog (sha256:{step.sha256}), and is not used")
    return None
