"""Whether the host's own indexes can be locked from, and what they do not tell of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.catalog.requirement import package_name
from cannery.errors import NetworkError
from cannery.lock.io.places import url_path
from cannery.util.io.http import CertificateError
from cannery.util.io.trouble import State
from cannery.util.urls import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import requests

    from cannery.lock.io.indexes import Answer
    from cannery.lock.lock import LockRequest


def usual_projects(request: LockRequest, bound: Sequence[str]) -> tuple[str, ...]:
    """Projects to ask a place for: some that the request wants of it, and pip, which every mirror of packages has."""
    names = sorted({package_name(text) for text in request.requirements} - {*bound, "pip"})
    return (*names[:2], "pip")


HINT = "see `pip config list` for where it is named"


def unreached(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Return, for each place that did not answer, what came of asking it; each place once."""
    places = {answer.place: str(answer) for answer in reversed(answers) if not answer.reached}
    return tuple(places[place] for place in dict.fromkeys(a.place for a in answers) if place in places)


def check_main(answers: Sequence[Answer], exclude_newer: str) -> None:
    """Raise `NetworkError` when the main index, which was reached, cannot be locked from."""
    place = answers[0].place
    if not any(answer.state is State.OK for answer in answers):
        asked = ", ".join(answer.project for answer in answers)
        raise NetworkError(f"{answers[-1]}: it has none of {asked}, so it is no index of Python packages", hint=HINT)
    if not any(answer.dated for answer in answers):
        raise NetworkError(
            f"{place} tells no upload times, so the date bound {exclude_newer} would hide all that it has",
            hint="name another mirror as pip's index-url for locking; building from a lock works with this one",
        )


def remote_size(url: str, session: requests.Session, timeout: float) -> int:
    """Size in bytes of a file whose index does not tell it. Raises `NetworkError` when it cannot be told."""
    try:
        if url.startswith("file:"):
            return url_path(url).stat().st_size
        response = session.head(url, timeout=timeout, allow_redirects=True, headers={"Accept-Encoding": "identity"})
        response.raise_for_status()
        return int(response.headers["Content-Length"])
    except (OSError, KeyError, ValueError) as error:  # requests' own are OSErrors
        reason = str(error) if isinstance(error, CertificateError) else type(error).__name__
        raise NetworkError(f"{shown(url)}: its size cannot be told ({reason})") from error
