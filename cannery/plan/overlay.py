"""The user that an image runs as, where its profile names one, and the folders that such an image writes to.

Layers are root's (owner 0:0), so that the same lock gives the same layers whoever runs them. What is written at run
time has places of its own, made in the system layer: caches that every user may write, and an environment on top of
/opt/venv that takes what `pip install` brings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from cannery.catalog.component import Closed
from cannery.catalog.fault import FaultError
from cannery.catalog.fields import parsed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cannery.plan.plan import Plan
    from cannery.recipe.recipe import Recipe

# What every distribution's tools take as a name in /etc/passwd; the driver's user has capitals.
USER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
# Below are the distribution's own users, above are nobody (65534) and what OpenShift gives to namespaces.
FIRST_ID, LAST_ID = 1000, 60000
# The driver's installer makes its user with this number on hosts, and gives the device nodes to it (case U01).
DRIVER_ID = 1000
# Mode 1777 throughout, as /tmp has it: any user writes, and none removes what is another's.
CACHE_HOME = "/var/cache/cannery"
# A virtual environment on top of /opt/venv: `pip install` puts things here. Its owner is the image's user, its group
# root's, which is the one group that OpenShift's arbitrary users have.
OVERLAY = "/opt/user"
# Run by each Python of /opt/venv at its start: what `pip install -e` left in the overlay is then in force there too.
OVERLAY_PTH = "cannery-user.pth"
# Read by the pip of /opt/venv alone. The variable PIP_PYTHON would reach the pip of every environment that somebody
# makes (`python -m venv`, Ray's runtime_env), and send what is meant for that one to the overlay.
PIP_SETTINGS = "/opt/venv/pip.conf"
# uv takes nothing of /opt/venv for installed, and would bring torch again, of another index: it has to be told.
UV_SETTINGS = "/opt/cannery/uv.toml"
# Variable -> folder below CACHE_HOME. By their defaults all of these write below the home, into the working folder, or
# beside the code. CANN wants its own to exist.
CACHES: Mapping[str, str] = {
    "XDG_CACHE_HOME": "",
    "HF_HOME": "huggingface",
    "MODELSCOPE_CACHE": "modelscope",
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
    "ASCEND_CACHE_PATH": "ascend",
    "ASCEND_WORK_PATH": "ascend/work",
    "ASCEND_PROCESS_LOG_PATH": "ascend/log",
}
# The same of single components, by distribution.
CACHES_OF: Mapping[str, Mapping[str, str]] = {
    # Inductor's default holds the user's name, and a number without one is a KeyError.
    "torch": {
        "TORCH_EXTENSIONS_DIR": "torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
        "TRITON_CACHE_DIR": "triton",
    },
    "vllm": {"VLLM_CACHE_ROOT": "vllm", "VLLM_CONFIG_ROOT": "vllm/config"},
}


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


def cache_folders(recipe: Recipe) -> dict[str, str]:
    """Return {variable: absolute folder} of what the image writes at run time; none for a profile without a user."""
    if recipe.profile.user is None:
        return {}
    named = dict(CACHES)
    for chosen in recipe.chosen:
        named |= CACHES_OF.get(chosen.package, {})
    return {variable: f"{CACHE_HOME}/{folder}".rstrip("/") for variable, folder in named.items()}


def overlay_site(recipe: Recipe) -> str:
    """Return the folder in which modules stand that `pip install` brought."""
    return f"{OVERLAY}/lib/python{recipe.target.python}/site-packages"


def overlay_files(plan: Plan) -> dict[str, str]:
    """Return {path in the image: text} of what joins /opt/venv, pip and uv to the overlay; none without a user."""
    recipe = plan.recipe
    if recipe.profile.user is None:
        return {}
    path = f"/opt/venv/lib/python{recipe.target.python}/site-packages/{OVERLAY_PTH}"
    names = {package.name for package in plan.lock.packages} | {step.package for step in plan.sources}
    return {
        path: f"import site; site.addsitedir({overlay_site(recipe)!r})\n",
        PIP_SETTINGS: f"[global]\npython = {OVERLAY}/bin/python\n",
        UV_SETTINGS: _uv_settings(names),
    }


def _uv_settings(names: Collection[str]) -> str:
    """Return settings with which `uv pip` installs into the overlay, and lets the packages `names` be as they are."""
    left = "".join(f'    "{name}",\n' for name in sorted(names))
    return (
        "# uv pip install --config-file " + UV_SETTINGS + " NAME\n"
        "# puts NAME and what it needs into "
        + OVERLAY
        + ". What the image has already, listed here, is left as it is,\n"
        "# NAME too: for another release of one of these take `pip install`.\n"
        f"exclude-dependencies = [\n{left}]\n\n"
        f'[pip]\npython = "{OVERLAY}/bin/python"\n'
    )
