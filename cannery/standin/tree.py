"""The stand-in base: its reference, its configuration, and a tar with files that make Debian look like a CANN image.

A stand-in has the environment, entrypoint, paths and version files of a CANN image, but no CANN. All of it follows only
from the inputs.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cannery.recipe.environment import expand_env, python_home, shell_quote
from cannery.standin.stubs import shared_library
from cannery.vocab import BaseKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cannery.catalog.catalog import BaseLine, BaseTag, StandIn
    from cannery.catalog.target import Target
    from cannery.lock.lock import Lock, LockedPackage
    from cannery.recipe.recipe import Recipe
    from cannery.standin.stubs import Stub


ASCEND = "/usr/local/Ascend"
LATEST = f"{ASCEND}/ascend-toolkit/latest"
ATB = f"{ASCEND}/nnal/atb"
ATB_FOLDERS = ("bin", "examples", "include", "lib", "tests/atbopstest")
ATB_ABIS = (0, 1)
# Variables whose value is a list of folders.
LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
ATB_NAMES = ("ATB_", "ASDOPS_", "LCCL_")

NPU_SMI = """\
#!/bin/sh
# The host's npu-smi is mounted over this file where there is a driver.
echo "npu-smi: this is a stand-in for a CANN image: no driver, no NPU, no CANN" >&2
exit 1
"""
CHOSEN_ABI = """\
case "${1-}" in
    --cxx_abi=[01]) export ATB_HOME_PATH="${ATB_HOME_PATH%_[01]}_${1#--cxx_abi=}" ;;
esac
"""
EMPTY_MODULE = '"""Stand-in for a Python module of CANN: it can be imported, and has nothing in it."""\n'
HEAD = "# Stand-in for a script of CANN: gives the values that the image's ENV has, and changes none that is set.\n"
REPOSITORY = "cannery-standin"
DIGITS = 12
# The distribution whose CANN libraries are stubbed.
TORCH_NPU = "torch-npu"
SHELL = ("/bin/bash", "-c")


@dataclass(frozen=True)
class Entry:
    """A file (`content`), link (`target`) or folder (neither) at an absolute `path`."""

    path: str
    content: bytes | None = None
    target: str | None = None
    mode: int = 0o644


def cann_version(cann: str) -> str:
    """Return a CANN version in CANN's spelling: 8.3.RC1."""
    return cann.upper()


def cann_tree(spec: StandInSpec, stubs: Mapping[Stub, bytes]) -> tuple[Entry, ...]:
    """Return the CANN files of the stand-in; `stubs` maps each stub library to its content."""
    line, version = spec.line, cann_version(spec.target.cann)
    home = _toolkit(spec)
    atb = f"{ATB}/{version}"
    entries = [Entry(f"{home}/{folder}") for folder in spec.data.folders]
    modules = f"{home}/python/site-packages"
    entries += [Entry(f"{modules}/{name.replace('.', '/')}.py", EMPTY_MODULE.encode()) for name in spec.data.modules]
    entries += _links(spec)
    entries += [Entry(f"{atb}/atb/cxx_abi_{abi}/{folder}") for abi in ATB_ABIS for folder in ATB_FOLDERS]
    for file in line.version_files:
        text = file.line.replace("{version}", version)
        entries.append(Entry(_real(file.at(spec.target.arch), spec), f"{text}\n".encode()))
    entries += [Entry(_real(path, spec), _set_env(path, spec).encode(), mode=0o755) for path in line.scripts]
    for stub, content in stubs.items():
        folders = [f"{atb}/atb/cxx_abi_{abi}/lib" for abi in ATB_ABIS] if stub.home == "atb" else [f"{home}/lib64"]
        entries += [Entry(f"{folder}/{stub.soname}", content, mode=0o755) for folder in folders]
    sourced = "".join(f". {text}\n" for text in line.set_env)
    entries += [
        Entry("/etc/profile.d/ascend.sh", f"# As in CANN images, login shells source these.\n{sourced}".encode()),
        Entry("/usr/local/bin/npu-smi", NPU_SMI.encode(), mode=0o755),
        *_python(spec),
    ]
    return with_parents(entries)


def with_parents(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries and their parent folders, sorted by path, without repeats."""
    found = {entry.path: entry for entry in entries}
    every = {*found}
    for path in found:
        above = path
        while (above := above.rpartition("/")[0]) and above not in every:  # otherwise all its parents are known
            every.add(above)
    return tuple(found.get(path) or Entry(path) for path in sorted(every))


def tree_tar(entries: Iterable[Entry], epoch: int) -> bytes:
    """Return the entries as an uncompressed tar: owner 0:0, mtime `epoch`, names without a leading slash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path.lstrip("/"))
            info.mtime, info.mode = epoch, entry.mode
            if entry.content is not None:
                info.size = len(entry.content)
                archive.addfile(info, io.BytesIO(entry.content))
                continue
            if entry.target is not None:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
            else:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
    return buffer.getvalue()


def _toolkit(spec: StandInSpec) -> str:
    """Return the real folder of the toolkit. `latest` is a link to the version's folder, from 8.5 on cann-<version>."""
    home = spec.line.toolkit_home
    return f"{ASCEND}/ascend-toolkit/{cann_version(spec.target.cann)}" if home == LATEST else home


def _links(spec: StandInSpec) -> list[Entry]:
    version, home = cann_version(spec.target.cann), _toolkit(spec)
    links = [Entry(f"{ATB}/latest", target=version)]
    if spec.line.toolkit_home == LATEST:
        return [*links, Entry(LATEST, target=version)]
    name = PurePosixPath(home).name
    return [*links, Entry(LATEST, target=f"../{name}"), Entry(f"{ASCEND}/cann", target=name)]


def _real(path: str, spec: StandInSpec) -> str:
    """Return `path` with the two `latest` links followed: a layer must not write through a link."""
    for link, real in ((LATEST, _toolkit(spec)), (f"{ATB}/latest", f"{ATB}/{cann_version(spec.target.cann)}")):
        if path.startswith(f"{link}/"):
            return real + path.removeprefix(link)
    return path


def _python(spec: StandInSpec) -> list[Entry]:
    name = f"python{spec.data.python}"
    folder = f"{spec.python_home}/bin"
    links = {name: f"/usr/bin/{name}", "python3": name, "python": "python3"}
    return [
        Entry(f"{spec.python_home}/lib"),
        *(Entry(f"{folder}/{link}", target=target) for link, target in links.items()),
    ]


def _set_env(path: str, spec: StandInSpec) -> str:
    """Return the text of one set_env.sh: its part of the image's ENV. A script in a `bin` adds its folder to PATH.

    The script of ATB takes the C++ ABI as an argument, which overrides the one in ENV.
    """
    atb = path.startswith(f"{ATB}/")
    folder = path.rpartition("/")[0]
    if folder in spec.line.program_folders:
        return HEAD + "".join(_prepend("PATH", [shell_quote(folder)]))
    env = spec.env
    singles = [
        f"export {name}=${{{name}-{shell_quote(value) if value else ''}}}\n"
        for name, value in env.items()
        if name not in LISTS and name.startswith(ATB_NAMES) is atb
    ]
    # An image may use the other C++ ABI of ATB: the folders follow ATB_HOME_PATH.
    home = env.get("ATB_HOME_PATH", "")
    lists = []
    for name in LISTS:
        parts = (part for part in env.get(name, "").split(":") if part.startswith(f"{ASCEND}/"))
        folders = [part for part in parts if part.startswith(f"{ATB}/") is atb]
        words = [
            f'"$ATB_HOME_PATH"{shell_quote(part.removeprefix(home))}' if atb and home else shell_quote(part)
            for part in folders
        ]
        lists += _prepend(name, words)
    chosen = CHOSEN_ABI if atb and home else ""
    return "".join([HEAD, *singles, chosen, *lists])


def _prepend(name: str, words: list[str]) -> list[str]:
    """Return shell lines that prepend each missing folder in `words` (shell words) to the list `name`, in order."""
    if not words:
        return []
    return [
        f"for _cann in {' '.join(reversed(words))}; do\n",
        f'    case ":${{{name}-}}:" in\n',
        '        *":$_cann:"*) ;;\n',
        f'        *) export {name}="$_cann${{{name}:+:${name}}}" ;;\n',
        "    esac\n",
        "done\n",
        "unset _cann\n",
    ]


@dataclass(frozen=True)
class StandInSpec:
    """All inputs of a stand-in image. `torch_npu` is None for a stack without it, which gets no stubs."""

    data: StandIn
    target: Target
    line: BaseLine
    tag: BaseTag
    torch_npu: LockedPackage | None

    @property
    def env(self) -> dict[str, str]:
        """The environment of the image, the same as in the CANN image."""
        return expand_env(self.line, self.target, self.tag)

    @property
    def python_home(self) -> str:
        """The folder of Python, named as in the CANN image. The interpreter is Debian's."""
        return python_home(self.tag)

    @property
    def reference(self) -> str:
        """`cannery-standin:<cann>-<chip>-<os>-py<python>-<arch>-<digest>`."""
        return f"{REPOSITORY}:{self.target}-{self.digest}"

    @property
    def digest(self) -> str:
        """A digest (12 hex digits) of the recipe, its files and configuration, and the torch_npu wheel.

        A sample stub covers the code that writes stubs. The recipe's `schema` covers the code for the Debian system.
        """
        wheel, arch = self.torch_npu, self.target.arch
        content = {
            "recipe": self.data.model_dump(mode="json"),
            "target": asdict(self.target),
            "tree": repr(cann_tree(self, {})),
            "config": {"env": list(self.env.items()), "entrypoint": entrypoint(self.line.set_env)},
            "stub": shared_library(arch, "libsample.so", functions=["f"], objects=["o"]).hex(),
            "torch_npu": [wheel.version, wheel.sha256] if wheel else None,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGITS]


def standin_spec(recipe: Recipe, lock: Lock, data: StandIn) -> StandInSpec:
    """Return the inputs of the stand-in of `recipe` for the lock's arch.

    Raises `FindingsError` if no CANN image exists for the target.
    """
    wheel = next((package for package in lock.packages if package.name == TORCH_NPU), None)
    target = replace(recipe.target, arch=lock.arch)
    return StandInSpec(data, target, recipe.base.line, recipe.base.tag, wheel)


def entrypoint(set_env: Sequence[str]) -> tuple[str, ...]:
    """Return the ENTRYPOINT of CANN images: it sources each script and then executes the command."""
    steps = [f"source {text}" for text in set_env]
    return (*SHELL, " && ".join([*steps, 'exec "$@"']), "--")


def labels(spec: StandInSpec) -> dict[str, str]:
    """Return the labels of the image. They mark it as a stand-in."""
    return {
        "org.cannery.base.kind": str(BaseKind.STANDIN),
        "org.cannery.standin": spec.digest,
        "org.cannery.standin.for": spec.target.base_tag,
        "org.cannery.standin.suite": spec.data.suite,
        "org.cannery.warning": "stand-in base: no CANN inside, it can run nothing on an NPU",
        "org.opencontainers.image.title": "Stand-in for a CANN base image",
    }
