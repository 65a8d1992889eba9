"""The environment of an image and of its base. ENV and /etc/profile.d/cannery.sh are both made from it.

The values are set in this order: those of the base (`expand_env`), with the ATB for torch_npu's C++ ABI (`with_abi`);
those of the virtual environment; source trees on PYTHONPATH; those of the components, in the profile's order; those of
the profile. A component's value may refer to an earlier name as `${NAME}`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cannery.catalog.target import parsed_range, parsed_version
from cannery.errors import FindingsError, UsageError
from cannery.recipe.recipe import python_folders
from cannery.vocab import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.catalog import BaseLine, BaseTag
    from cannery.catalog.target import Target
    from cannery.recipe.recipe import ChosenWheels, Recipe

VENV = "/opt/venv"
PYTHONPATH = "PYTHONPATH"
# ATB has two builds, …/atb/cxx_abi_0 and …/atb/cxx_abi_1, and the environment names one of them. It must match the C++
# ABI of torch_npu, which depends on release and arch. A CANN image may name the other build.
ATB_HOME, ATB_ABI = "ATB_HOME_PATH", "ATB_CXX_ABI"
BUILD = re.compile(r"(?P<stem>.*/cxx_abi_)(?P<abi>[01])/*")
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# BuildKit's PATH for an image without one. The images of Ubuntu and openEuler set the same.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[^}]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The placeholders in ENV lines of images/bases. They have no dollar sign, unlike Docker's `${…}`.
FIELD = re.compile(r"(?<!\$)\{(python_home|atb_abi)\}")
# All folders below have mode 1777, like /tmp: every user can write, but not remove another user's files.
CACHE_HOME = "/var/cache/cannery"
# A virtual environment on top of /opt/venv for `pip install`. It belongs to the image's user and the group root, which
# OpenShift's arbitrary users are in.
OVERLAY = "/opt/user"
# {variable: folder below CACHE_HOME}. The defaults are in the home, the working directory, or beside the code. The
# folders of CANN must exist.
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
# The same for single distributions.
CACHES_OF: Mapping[str, Mapping[str, str]] = {
    # Inductor's default has the user's name in it, and fails with a KeyError for a uid without a name.
    "torch": {
        "TORCH_EXTENSIONS_DIR": "torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
        "TRITON_CACHE_DIR": "triton",
    },
    "vllm": {"VLLM_CACHE_ROOT": "vllm", "VLLM_CONFIG_ROOT": "vllm/config"},
}


def image_environment(recipe: Recipe, base: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of the image, in the order of setting."""
    abi = known_abi(recipe)
    env = dict(base) if abi is None else with_abi(base, abi)
    env["VIRTUAL_ENV"] = VENV
    env["PATH"] = ":".join((f"{VENV}/bin", *recipe.base.line.program_folders, env["PATH"]))
    if folders := python_folders(recipe):
        # After the base's folders, so that CANN finds its own modules first.
        env[PYTHONPATH] = ":".join((env.get(PYTHONPATH, ""), *folders))
    if recipe.profile.user is not None:
        # Python is still that of /opt/venv, but pip installs into the overlay. The overlay is last on PYTHONPATH, which
        # comes before /opt/venv, so a release that a user installs is used.
        venv, *rest = env["PATH"].split(":")
        env["PATH"] = ":".join((venv, f"{OVERLAY}/bin", *rest))
        env[PYTHONPATH] = ":".join((env.get(PYTHONPATH, ""), overlay_site(recipe)))
        env |= cache_folders(recipe)
    for values in (*(chosen.component.env for chosen in recipe.chosen), recipe.profile.env):
        for name, value in values.items():
            env[name] = REFERENCE.sub(lambda match: env.get(match[1], ""), value)
    # `A=x:$A` leaves an empty segment if A was unset. Python, the loader and the shell read it as the working
    # directory: a folder named vllm there would shadow the package (vllm-project/vllm-ascend issue 527).
    for name in (name for name in env if name.endswith("PATH")):
        env[name] = ":".join(filter(None, env[name].split(":")))
    return env


def profile_script(env: Mapping[str, str]) -> str:
    """Return /etc/profile.d/cannery.sh for login shells: /etc/profile resets PATH, and ssh drops the whole environment.

    If the shell has the image's environment (VIRTUAL_ENV is set), only PATH is set, so that `bash -l` does not undo
    `docker run -e`. Otherwise all variables are set, whatever the base's profile scripts have set before.
    """
    lines = [f"    export {name}={shell_quote(value)}" for name, value in env.items() if name != "PATH"]
    return (
        "# Made by Cannery from the same table as the image's ENV: login shells get the same environment.\n"
        f"export PATH={shell_quote(env['PATH'])}\n"
        'if [ -z "${VIRTUAL_ENV+set}" ]; then\n' + "\n".join([*lines, "fi\n"])
    )


def shell_quote(value: str) -> str:
    """Quote `value` for a POSIX shell, always in single quotes."""
    return "'" + value.replace("'", "'\\''") + "'"


def docker_quote(value: str) -> str:
    """Quote `value` for a Dockerfile's ENV or LABEL: double quotes, nothing expanded.

    Raises `UsageError` for more than one line, since the second would be an instruction.
    """
    if "\n" in value or "\r" in value:
        raise UsageError(f"{value!r} has more than one line", hint="a value of ENV or LABEL is one line")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'


def start_folder(recipe: Recipe) -> str | None:
    """Return the working directory of containers; None if the image does not set one."""
    user = recipe.profile.user
    return recipe.profile.workdir or (user.home if user else None)


def deciding(recipe: Recipe) -> ChosenWheels | None:
    """Return the component that determines the ABI (torch_npu); None if the set does not have it."""
    return next((chosen for chosen in recipe.wheels if chosen.component.cxx_abi is not None), None)


def known_abi(recipe: Recipe) -> int | None:
    """Return the ABI of the recipe's torch_npu on its arch; None without torch_npu, or if it is not known."""
    chosen = deciding(recipe)
    if chosen is None or chosen.component.cxx_abi is None or chosen.version is None:
        return None
    ranges = chosen.component.cxx_abi.by_release.get(chosen.arch, {})
    version = parsed_version(chosen.version)
    fitting = (abi for text, abi in ranges.items() if parsed_range(text).contains(version, prereleases=True))
    return next(fitting, None)


def atb_abi(recipe: Recipe) -> int:
    """Return the ABI that the image uses: that of torch_npu, or if unknown, that of the base image.

    Raises `FindingsError` if it is unknown and the target has no base image.
    """
    known = known_abi(recipe)
    return recipe.base.tag.atb_abi if known is None else known


def with_abi(env: Mapping[str, str], abi: int) -> dict[str, str]:
    """Return `env` with the build of ATB for `abi`.

    This changes ATB_HOME_PATH, every path below it in other values, and ATB_CXX_ABI if it is set (login shells pass it
    to ATB's script). An environment without ATB is returned unchanged.
    """
    home = BUILD.fullmatch(env.get(ATB_HOME, ""))
    if home is None:
        return dict(env)
    named, wanted = f"{home['stem']}{home['abi']}", f"{home['stem']}{abi}"
    below = re.compile(rf"(?<![^:]){re.escape(named)}(?=[/:]|$)")
    found = {name: below.sub(lambda _: wanted, value) for name, value in env.items()}
    return {**found, ATB_ABI: str(abi)} if ATB_ABI in found else found


def python_home(tag: BaseTag) -> str:
    """Return the folder of Python in CANN images: /usr/local/python<full version>."""
    return f"/usr/local/python{tag.python}"


def expand_env(line: BaseLine, target: Target, tag: BaseTag) -> dict[str, str]:
    """Return the final environment of the CANN image of `target`, in the order in which names first appear.

    `line` and `tag` are those of the target. Raises `FindingsError` if the line has no image with the target's OS, and
    `UsageError` for an invalid reference in an ENV line.
    """
    lines = line.env.get(target.os)
    if lines is None:
        raise FindingsError(
            f"CANN {line.cann} has no image on {target.os}",
            where=f"images/bases/{line.cann}.yaml",
            hint=did_you_mean(target.os, line.env),
        )
    fields = {"python_home": python_home(tag), "atb_abi": str(tag.atb_abi)}
    env = {"PATH": DEFAULT_PATH}

    def known(match: re.Match[str]) -> str:
        name = match["plain"] or match["braced"]
        if not NAME.fullmatch(name):
            where = f"images/bases/{line.cann}.yaml"
            raise UsageError(f"{match[0]} is not understood", where=where, hint="write ${NAME}")
        return env.get(name, "")

    for text in lines:
        name, _, value = text.partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        env[name] = BASE_REFERENCE.sub(known, FIELD.sub(lambda match: fields[match[1]], value))
    return env


def cache_folders(recipe: Recipe) -> dict[str, str]:
    """Return {variable: absolute folder} of the image's caches; empty for a profile without a user."""
    if recipe.profile.user is None:
        return {}
    named = dict(CACHES)
    for chosen in recipe.chosen:
        named |= CACHES_OF.get(chosen.package, {})
    return {variable: f"{CACHE_HOME}/{folder}".rstrip("/") for variable, folder in named.items()}


def overlay_site(recipe: Recipe) -> str:
    """Return the site-packages folder for packages that a user installs with pip."""
    return f"{OVERLAY}/lib/python{recipe.target.python}/site-packages"
