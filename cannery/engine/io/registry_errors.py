"""Why a registry gives no image: one error a kind, with words for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.vocab import Arch

LOGIN = "it refuses access"
STATUSES = {404: "it has no such image", 401: LOGIN, 403: LOGIN, 429: "it limits the rate of requests"}
# The words for what is no registry's own answer.
NOT_A_REGISTRY = "what answers there is no registry"


class RefusedError(Exception):
    """Why a registry gives no image; the text is for the user, without secrets."""


class OtherArchError(RefusedError):
    """The image is there, and not for this architecture."""


class AbsentError(RefusedError):
    """The registry answers, and has no such image."""


class DeniedError(RefusedError):
    """The registry, or its token service, refuses access."""


class PassingError(RefusedError):
    """Trouble that another try may not meet: a lost connection, silence, an overloaded server."""


def refuse_lacking(has: Sequence[str], arches: Sequence[Arch]) -> None:
    """Raise `OtherArchError` where an image that is there for the architectures `has` lacks one of `arches`."""
    lacking = [arch for arch in arches if arch not in has]
    if lacking:
        has_words = " and ".join(has) or "no platform"
        raise OtherArchError(f"it has the image for {has_words}, not for {' and '.join(lacking)}")


def refused(status: int, who: str = "") -> RefusedError:
    """Return the error for a status; a token service's 404 says nothing of an image."""
    kinds: dict[int, type[RefusedError]] = {401: DeniedError, 403: DeniedError, 429: PassingError}
    kinds |= {} if who else {404: AbsentError}
    return kinds.get(status, RefusedError)(f"{who}{STATUSES.get(status, NOT_A_REGISTRY)} (HTTP {status})")
