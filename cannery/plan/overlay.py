"""Files that join /opt/venv, pip and uv to the environment of an image's own user.

Layers are root's (owner 0:0), so that the same lock gives the same layers whoever runs them. What is written at run
time has places of its own (`cannery.recipe.environment`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.recipe.environment import OVERLAY, overlay_site

if TYPE_CHECKING:
    from collections.abc import Collection

    from cannery.plan.plan import Plan

# Run by each Python of /opt/venv at its start: what `pip install -e` left in the overlay is then in force there too.
OVERLAY_PTH = "cannery-user.pth"
# Read by the pip of /opt/venv alone. The variable PIP_PYTHON would reach the pip of every environment that somebody
# makes (`python -m venv`, Ray's runtime_env), and send what is meant for that one to the overlay.
PIP_SETTINGS = "/opt/venv/pip.conf"
# uv takes nothing of /opt/venv for installed, and would bring torch again, from another index: it needs settings.
UV_SETTINGS = "/opt/cannery/uv.toml"


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
