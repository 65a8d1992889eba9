"""The folders that an image with a user of its own writes to: caches, and an environment on top of /opt/venv."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.recipe.recipe import Recipe

# Mode 1777 throughout, as /tmp has it: any user writes, and none removes what is another's.
CACHE_HOME = "/var/cache/cannery"


# A virtual environment on top of /opt/venv: `pip install` puts things here. Its owner is the image's user, its group
# root's, which is the one group that OpenShift's arbitrary users have.
OVERLAY = "/opt/user"


# Variable -> folder below CACHE_HOME. By their defaults all of these write below the home, into the working folder, or
# beside the code. CANN needs its own to exist.
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


def cache_folders(recipe: Recipe) -> dict[str, str]:
    """Return {variable: absolute folder} of what the image writes at run time; none for a profile without a user."""
    if recipe.profile.user is None:
        return {}
    named = dict(CACHES)
    for chosen in recipe.chosen:
        named |= CACHES_OF.get(chosen.package, {})
    return {variable: f"{CACHE_HOME}/{folder}".rstrip("/") for variable, folder in named.items()}


def overlay_site(recipe: Recipe) -> str:
    """Return the folder of modules that `pip install` brought."""
    return f"{OVERLAY}/lib/python{recipe.target.python}/site-packages"
