"""The environment of an image and of its base. ENV and /etc/profile.d/cannery.sh are both made from it.

The values come in this order: the base's own (`expand_env`), with ATB of torch_npu's C++ ABI (`with_abi`); those of the
virtual environment; the trees on PYTHONPATH; the components' in the profile's order; the profile's. A component's value
may refer to a name that was set before, as `${NAME}`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

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
# ATB has two builds, …/atb/cxx_abi_0 and …/atb/cxx_abi_1; the environment names one. torch_npu's C++ ABI decides, by
# release and arch; a CANN image names the build that was usual when it was made.
ATB_HOME, ATB_ABI = "ATB_HOME_PATH", "ATB_CXX_ABI"
BUILD = re.compile(r"(?P<stem>.*/cxx_abi_)(?P<abi>[01])/*")
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# BuildKit's PATH for an image whose base sets none. Ubuntu's and openEuler's images set the same.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BASE_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[^}]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What an ENV line of images/bases leaves open. Not `${…}` of Docker: a field has no dollar sign before it.
FIELD = re.compile(r"(?<!\$)\{(python_home|atb_abi)\}")
# All folders have mode 1777, as /tmp: every user can write, and nobody can remove another user's files.
CACHE_HOME = "/var/cache/cannery"
# A virtual environment on top of /opt/venv: `pip install` puts things here. Its owner is the image's user, its group
# root's, which is the one group that OpenShift's arbitrary users have.
OVERLAY = "/opt/user"
# Variable -> folder below CACHE_HOME. By default they all write below the home, into the working folder, or beside the
# code. CANN's own folders have to exist.
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
# The same for single components, by distribution.
CACHES_OF: Mapping[str, Mapping[str, str]] = {
    # Inductor's default holds the user's name, and a number without one is a KeyError.
    "torch": {
        "TORCH_EXTENSIONS_DIR": "torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
        "TRITON_CACHE_DIR": "triton",
    },
    "vllm": {"VLLM_CACHE_ROOT": "vllm", "VLLM_CONFIG_ROOT": "vllm/config"},
}


def image_environment(recipe: Recipe, base: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of the image, in the order in which it is set."""
    abi = known_abi(recipe)
    env = dict(base) if abi is None else with_abi(base, abi)
    env["VIRTUAL_ENV"] = VENV
    env["PATH"] = ":".join((f"{VENV}/bin", *recipe.base.line.program_folders, env["PATH"]))
    if folders := python_folders(recipe):
        # After the base's own folders, so that CANN finds its own modules first.
        env[PYTHONPATH] = ":".join((env.get(PYTHONPATH, ""), *folders))
    if recipe.profile.user is not None:
        # Python stays /opt/venv's; its pip installs into the overlay. What it installed is last on PYTHONPATH, which is
        # before /opt/venv: a newer release that a user installs is the one in use.
        venv, *rest = env["PATH"].split(":")
        env["PATH"] = ":".join((venv, f"{OVERLAY}/bin", *rest))
        env[PYTHONPATH] = ":".join((env.get(PYTHONPATH, ""), overlay_site(recipe)))
        env |= cache_folders(recipe)
    for values in (*(chosen.component.env for chosen in recipe.chosen), recipe.profile.env):
        for name, value in values.items():
            env[name] = REFERENCE.sub(lambda match: env.get(match[1], ""), value)
    # `A=x:$A` leaves an empty segment where A was unset. To Python, the loader and the shell that is the working
    # directory: a folder named vllm there would shadow the package (vllm-project/vllm-ascend issue 527).
    for name in (name for name in env if name.endswith("PATH")):
        env[name] = ":".join(filter(None, env[name].split(":")))
    return env


def profile_script(env: Mapping[str, str]) -> str:
    """Return /etc/profile.d/cannery.sh: what a login shell needs, since /etc/profile resets PATH, and ssh drops all.

    A shell that has the image's environment (VIRTUAL_ENV is set) gets PATH back and keeps every other value, so that
    `bash -l` does not undo `docker run -e`. A session that begins without it gets everything, whatever the base's own
    profile scripts set before.
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
    """Return the folder that a container starts in; None where the image names none."""
    user = recipe.profile.user
    return recipe.profile.workdir or (user.home if user else None)


def deciding(recipe: Recipe) -> ChosenWheels | None:
    """Return the component whose release decides the ABI (torch_npu); None where the set has none."""
    return next((chosen for chosen in recipe.wheels if chosen.component.cxx_abi is not None), None)


def known_abi(recipe: Recipe) -> int | None:
    """Return the ABI of the recipe's torch_npu on its arch; None where there is none, or where it is not known."""
    chosen = deciding(recipe)
    if chosen is None or chosen.component.cxx_abi is None or chosen.version is None:
        return None
    ranges = chosen.component.cxx_abi.by_release.get(chosen.arch, {})
    fitting = (abi for text, abi in ranges.items() if SpecifierSet(text).contains(chosen.version, prereleases=True))
    return next(fitting, None)


def atb_abi(recipe: Recipe) -> int:
    """Return the ABI that the image uses: torch_npu's, or the base image's where that is not known.

    Raises `FindingsError` when the target has no base image and nothing else names it.
    """
    known = known_abi(recipe)
    return recipe.base.tag.atb_abi if known is None else known


def with_abi(env: Mapping[str, str], abi: int) -> dict[str, str]:
    """Return `env` with ATB's build of `abi` in place of the one that ATB_HOME_PATH names.

    This changes ATB_HOME_PATH, every path below it in any value, and ATB_CXX_ABI where it is set, which login shells
    pass to ATB's script. An environment without ATB stays as it is.
    """
    home = BUILD.fullmatch(env.get(ATB_HOME, ""))
    if home is None:
        return dict(env)
    named, wanted = f"{home['stem']}{home['abi']}", f"{home['stem']}{abi}"
    below = re.compile(rf"(?<![^:]){re.escape(named)}(?=[/:]|$)")
    found = {name: below.sub(lambda _: wanted, value) for name, value in env.items()}
    return {**found, ATB_ABI: str(abi)} if ATB_ABI in found else found


def python_home(tag: BaseTag) -> str:
    """Return the folder of the interpreter in CANN images: /usr/local/python<full version>."""
    return f"/usr/local/python{tag.python}"


def expand_env(line: BaseLine, target: Target, tag: BaseTag) -> dict[str, str]:
    """Return the final environment of the CANN image of `target`, in the order in which names first appear.

    `line` and `tag` are the target's. Raises `FindingsError` when the line has no image on the target's OS,
    `UsageError` for a reference in an ENV line that is not understood.
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
    """Return {variable: absolute folder} of the caches that the image writes; none for a profile without a user."""
    if recipe.profile.user is None:
        return {}
    named = dict(CACHES)
    for chosen in recipe.chosen:
        named |= CACHES_OF.get(chosen.package, {})
    return {variable: f"{CACHE_HOME}/{folder}".rstrip("/") for variable, folder in named.items()}


def overlay_site(recipe: Recipe) -> str:
    """Return the folder of the modules that a user installs with pip."""
    return f"{OVERLAY}/lib/python{recipe.target.python}/site-packages"
