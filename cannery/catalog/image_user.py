"""The user that an image runs as, where its profile names one."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from cannery.catalog.component import Closed
from cannery.catalog.errors import FaultError
from cannery.catalog.fields import parsed

# What every distribution's tools take as a name in /etc/passwd; the driver's user has capitals.
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")


# Below are the distribution's own users, above are nobody (65534) and what OpenShift gives to namespaces.
FIRST_ID, LAST_ID = 1000, 60000


# The driver's installer makes its user with this number on hosts, and gives the device nodes to it (case U01).
DRIVER_ID = 1000


def _user_name(value: str, _option: str) -> str:
    if not USER_NAME.fullmatch(value):
        what = f"{value!r} is not a name in /etc/passwd"
        raise FaultError(what, "letters, digits, _ and -, at most 32, the first no digit, like HwHiAiUser")
    if value == "root":
        raise FaultError("root needs no user", "leave `user` out: images run as root then")
    return value


class ImageUser(Closed):
    """A user with a name, a number, a group of the same name, and a home /home/<name>."""

    name: Annotated[str, parsed(_user_name)]
    uid: int = Field(DRIVER_ID, ge=FIRST_ID, le=LAST_ID)
    gid: int = Field(DRIVER_ID, ge=FIRST_ID, le=LAST_ID)

    @property
    def home(self) -> str:
        """The folder that HOME names."""
        return f"/home/{self.name}"


def _from_name(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    """Take a name alone for a user with that name and the usual numbers."""
    return {"name": value} if isinstance(value, str) else value


UserField = Annotated[ImageUser, BeforeValidator(_from_name)]
