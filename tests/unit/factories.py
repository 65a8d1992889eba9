"""Small catalogs, recipes and locks: six packages in the place of 126, every kind that matters among them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from cannery.catalog.addresses import Host, Index, Registries
from cannery.catalog.catalog import BaseLine, Catalog, ChipAccess, Profile, StandIn, Tools
from cannery.catalog.compatibility import Compatibility
from cannery.catalog.component import parse_component
from cannery.compat.subject import Subject
from cannery.lock.lock import PROFILE_VIA, Lock, LockedPackage
from cannery.lock.request import lock_request, tools_request
from cannery.plan import Inputs, Plan
from cannery.plan.make import make_plan
from cannery.recipe.recipe import Options, Recipe, with_arch
from cannery.recipe.select import select
from cannery.vocab import DEFAULT_INDEX, Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cannery.catalog.component import Component

MOUNTS = ("/usr/local/dcmi", "/usr/local/Ascend/driver/lib64")
MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
NPU_CHECKS = ("npu.nodes", "npu.tensor")
EXCLUDE_NEWER = "2026-01-02"
# Commits of the made-up sources.
ENGINE, ENGINE_OLD, PLUGIN, KERNELS, KERNELS_OLD, PATCHER, LIBRARY = (digit * 40 for digit in "abcdef1")


def sha(text: str) -> str:
    """A hash that looks like one and is always the same."""
    return hashlib.sha256(text.encode()).hexdigest()


def package(name: str, version: str = "1.0", **changes: object) -> LockedPackage:
    """A complete locked package: a pure wheel of 1 MB that the profile asked for."""
    file = changes.pop("file", f"{name.replace('-', '_')}-{version}-py3-none-any.whl")
    found = LockedPackage(name, version, file, sha(file), 1_000_000, DEFAULT_INDEX, (PROFILE_VIA,))
    return replace(found, **changes)


def profile(**changes: object) -> Profile:
    """A profile of torch, torch_npu, a big package and an allocator."""
    value = {
        "summary": 'a made-up stack; "quotes" and $HOME stay as they are',
        "base": "cann",
        "target": {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11", "arch": ["amd64", "arm64"]},
        "exclude_newer": EXCLUDE_NEWER,
        "components": [
            {"name": "jemalloc"},
            {"name": "torch", "version": "2.9.0", "reason": "what torch_npu extends"},
            {"name": "torch-npu", "version": "2.9.0"},
            {"name": "ray"},
        ],
        "env": {"RAY_OPTIONS": '--say "it\'s $here"', "MORE_PATH": "${LD_LIBRARY_PATH}:/opt/more"},
        "shm_size": "2g",
        "may_skip": {BaseKind.STANDIN: NPU_CHECKS, BaseKind.REAL: NPU_CHECKS[:1]},
    }
    return Profile.model_validate({**value, **changes})


def source_profile(**changes: object) -> Profile:
    """A profile with a source (`engine`), one that is built upon it (`plugin`) and a native one (`kernels`)."""
    value = {
        "summary": "made-up sources on torch and torch_npu",
        "target": {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11", "arch": ["amd64", "arm64"]},
        "exclude_newer": EXCLUDE_NEWER,
        "components": [
            {"name": "torch", "version": "2.9.0"},
            {"name": "torch-npu", "version": "2.9.0"},
            {"name": "engine", "commit": ENGINE},
            {"name": "kernels", "commit": KERNELS},
            {"name": "plugin", "commit": PLUGIN},
        ],
    }
    return Profile.model_validate({**value, **changes})


@cache
def _parsed(values: str) -> Component:
    """A component of its JSON: it is frozen, so tests share it."""
    return parse_component(json.loads(values))


def source_components() -> dict[str, Component]:
    """The sources that `source_profile` names, and `patcher` with the `library` that it patches, for a test to add."""
    values: dict[str, dict[str, Any]] = {
        "engine": {
            "kind": "source",
            "summary": "serves models",
            "hosts": {"here": "made-up/engine"},
            "install": "wheel",
            "revisions": {
                ENGINE: {
                    "version": "0.11.0",
                    "requires": ["torch==2.9.0", "numpy<3", 'sympy; python_version < "3.9"'],
                    "requires_python": ">=3.9",
                    "source": "engine's list",
                },
                ENGINE_OLD: {
                    "version": "0.10.0",
                    "requires": ["torch==2.8.0"],
                    "requires_python": ">=3.9,<3.11",
                    "source": "engine's old list",
                },
            },
            "releases": {
                "0.11.0": {"requires": ["torch==2.9.0"], "note": "made from tag v0.11.0", "source": "its METADATA"}
            },
        },
        "plugin": {
            "kind": "source",
            "summary": "brings the engine onto NPUs",
            "hosts": {"here": "made-up/plugin"},
            "install": "editable",
            "after": ["torch", "engine"],
            "revisions": {PLUGIN: {"version": "1.0", "requires": ["torch>=2.8"], "source": "plugin's list"}},
        },
        "kernels": {
            "kind": "native",
            "summary": "kernels for NPUs",
            "hosts": {"here": "made-up/kernels"},
            "install": "wheel",
            "soc_variable": "SOC_VERSION",
            "before": [
                ["cmake", "-B", "build", "-DSOC_VERSION={soc}", "-DCANN={toolkit_home}", "-DPYTHON={python}"],
                ["cmake", "--build", "build", "--parallel", "{jobs}"],
            ],
            "after": ["torch-npu"],
            "revisions": {
                KERNELS: {
                    "version": "1.2.0",
                    "requires": ["torch-npu==2.9.0"],
                    "source": "kernels' list",
                },
                KERNELS_OLD: {"version": "1.1.0", "source": "kernels' old list"},
            },
            "releases": {"1.2.0": {"chips": ["910b"], "source": "the wheel's content"}},
        },
        "patcher": {
            "kind": "source",
            "summary": "patches the library",
            "hosts": {"here": "made-up/patcher"},
            "install": "tree",
            "revisions": {PATCHER: {"version": "0.1", "patches": {"library": [LIBRARY]}, "source": "its summary file"}},
        },
        "library": {
            "kind": "source",
            "summary": "what is patched",
            "package": "the-library",
            "hosts": {"here": "made-up/library"},
            "install": "editable",
            "revisions": {
                LIBRARY: {"version": "4.0.dev0", "source": "its setup.py"},
                ENGINE: {"version": "4.1", "source": "its setup.py"},
            },
            "releases": {"4.0": {"source": "its METADATA"}},
        },
    }
    return {name: _parsed(json.dumps(value)) for name, value in values.items()}


def components() -> dict[str, Component]:
    """The components that `profile` names, and `allocator`, which brings the same file as its jemalloc."""
    values: dict[str, dict[str, Any]] = {
        "jemalloc": {
            "kind": "system",
            "summary": "an allocator",
            "system": {"apt": ["libjemalloc2", "libnuma1"], "dnf": ["jemalloc"]},
            "links": {
                "/usr/local/lib/libjemalloc.so.2": {
                    "apt": {"amd64": "/usr/lib/x86_64/libj.so.2", "arm64": "/usr/lib/aarch64/libj.so.2"},
                    "dnf": {"amd64": "/usr/lib64/libj.so.2", "arm64": "/usr/lib64/libj.so.2"},
                }
            },
            "libraries": ["/usr/local/lib/libjemalloc.so.2"],
            "env": {"LD_PRELOAD": "/usr/local/lib/libjemalloc.so.2"},
        },
        "torch": {
            "kind": "wheels",
            "summary": "tensors",
            "index": "torch-cpu",
            "local": "cpu",
            "binds": ["torchvision"],
            "metadata": {"2.9.0": {"requires": ["sympy"], "source": "made up"}},
            "imports": [{"module": "torch", "attribute": "__version__"}],
        },
        "torch-npu": {"kind": "wheels", "summary": "tensors on an NPU", "imports": [{"module": "torch_npu"}]},
        "ray": {
            "kind": "wheels",
            "summary": "workers",
            "extras": ["default"],
            "imports": [{"module": "ray", "attribute": "__version__", "equals": "2.50.0"}],
        },
    }
    return {name: _parsed(json.dumps(value)) for name, value in values.items()}


def base_line(cann: str = "8.5.0") -> BaseLine:
    """A CANN line with an apt and a dnf OS, and a Python 3.10 beside 3.11."""
    home = f"/usr/local/Ascend/cann-{cann}"
    env = (
        "PATH={python_home}/bin:${PATH}",
        f"ASCEND_TOOLKIT_HOME={home}",
        "LD_LIBRARY_PATH=/usr/local/Ascend/lib64:$LD_LIBRARY_PATH",
    )
    tags = {
        f"{cann}-{chip}-{os}-py{python}": {"python": full, "atb_abi": 1}
        for chip in ("910b", "a3")
        for os in ("ubuntu22.04", "openeuler24.03")
        for python, full in (("3.10", "3.10.20"), ("3.11", "3.11.14"))
    }
    value = {
        "cann": cann,
        "source": "made up",
        "toolkit_home": home,
        "set_env": ["/usr/local/Ascend/ascend-toolkit/set_env.sh", "/usr/local/Ascend/nnal/atb/set_env.sh"],
        "version_files": [
            {"name": "toolkit", "path": f"{home}/{{machine}}-linux/install.info", "line": "version={version}"}
        ],
        "env": {"ubuntu22.04": env, "openeuler24.03": (*env, "ATB_ABI={atb_abi}")},
        "python_packages": ["attrs", "numpy"],
        "tags": tags,
    }
    return BaseLine.model_validate(value)


def compatibility() -> Compatibility:
    """Two CANN lines with three pairs each."""
    rows = [
        ("2.9.0", "2.9.0", "8.5.0"),
        ("2.8.0.post2", "2.8.0", "8.5.0"),
        ("2.7.1.post2", "2.7.1", "8.5.0"),
        ("2.8.0", "2.8.0", "8.3.rc1"),
        ("2.7.1", "2.7.1", "8.3.rc1"),
        ("2.6.0.post3", "2.6.0", "8.3.rc1"),
    ]
    pairs = [{"of": f"torch-npu=={n}", "fits": {"torch": t, "cann": c}, "source": "table"} for n, t, c in rows]
    sources = {"table": {"what": "a table", "rank": "table", "date": "2026-01-01"}}
    deny = [{"pattern": "nvidia-*", "reason": "CUDA"}]
    return Compatibility.model_validate(
        {"sources": sources, "rows": pairs, "deny": deny, "exclusive": [["triton", "triton-ascend"]]}
    )


def standin() -> StandIn:
    """A stand-in of two packages and one library."""
    value = {
        "schema": 1,
        "suite": "bookworm",
        "python": "3.11",
        "epoch": 0,
        "packages": ["python3"],
        "libraries": {"libacl.so": {"prefixes": ["acl"]}},
    }
    return StandIn.model_validate(value)


def catalog(**changes: object) -> Catalog:
    """A catalog with the profiles `stack` and `sources`."""
    value = {
        "profiles": {"stack": profile(), "sources": source_profile()},
        "chips": {
            chip: ChipAccess(names=names, cards=8, managers=MANAGERS, mounts=MOUNTS, socs=socs)
            for chip, names, socs in (
                ("910b", "A2", ("ascend910b1", "ascend910b2")),
                ("a3", "A3", ("ascend910_9391",)),
                ("310p", "300I", ("ascend310p1",)),
                ("910", "910A", ()),
            )
        },
        "components": {**components(), **source_components()},
        "bases": {cann: base_line(cann) for cann in ("8.5.0", "8.3.rc1")},
        "registries": Registries(repositories=("registry.example/cann", "mirror.example/cann"), source="made up"),
        "indexes": {"torch-cpu": Index(urls=("https://index.example/cpu",))},
        "hosts": {"here": Host(url="https://git.example/{repository}.git")},
        "standin": standin(),
        "tools": Tools(requirements=("uv==0.9.0", "setuptools"), exclude_newer=EXCLUDE_NEWER),
        "compatibility": compatibility(),
    }
    return Catalog(**{**value, **changes})


def recipe(options: Options | None = None, found: Catalog | None = None, host: Arch = Arch.AMD64) -> Recipe:
    """The profile `stack`, bound to a target."""
    return select(found or catalog(), "stack", options or Options(), host, ["numpy"])


def user_recipe(options: Options | None = None, user: object = "HwHiAiUser", found: Catalog | None = None) -> Recipe:
    """The profile `stack` with a user, bound to a target."""
    data = found or catalog()
    return recipe(options, catalog(**{**vars(data), "profiles": {"stack": profile(user=user)}}))


def source_recipe(options: Options | None = None, found: Catalog | None = None, **changes: object) -> Recipe:
    """The profile `sources`, changed, bound to a target on an amd64 host."""
    data = found or catalog()
    profiles = {**data.profiles, "sources": source_profile(**changes)}
    return select(catalog(**{**vars(data), "profiles": profiles}), "sources", options or Options(), Arch.AMD64)


def subject(
    found: Recipe, data: Catalog | None = None, build_arch: Arch | None = None, **content: Sequence[LockedPackage]
) -> Subject:
    """What a rule judges; `content` are the packages of locks by arch (amd64=…), none while only pins are looked at."""
    python = found.target.python
    locks = {
        Arch(arch): Lock(found.name, python, Arch(arch), "0" * 64, EXCLUDE_NEWER, "uv 0.9.0", tuple(those))
        for arch, those in content.items()
    }
    return Subject(found, data or catalog(), locks, build_arch)


def packages(machine: str = "x86_64", python: str = "cp311") -> tuple[LockedPackage, ...]:
    """Six packages: three components (one from its own index), a big one, a small one, and an sdist."""
    native = f"{python}-{python}-manylinux_2_28_{machine}.whl"
    return (
        package("antlr4", "4.9.3", file="antlr4-4.9.3.tar.gz", size=117_034, via=("ray",)),
        package("numpy", "2.3.0", file=f"numpy-2.3.0-{native}", size=16_000_000, via=("torch-npu",)),
        package("ray", "2.50.0", file=f"ray-2.50.0-{native}", size=70_000_000),
        package("sympy", "1.14.0", size=6_299_353, via=("torch",)),
        package("torch", "2.9.0+cpu", file=f"torch-2.9.0+cpu-{native}", size=180_000_000, index="torch-cpu"),
        package("torch-npu", "2.9.0", file=f"torch_npu-2.9.0-{native}", size=24_000_000),
    )


def lock(found: Recipe, arch: Arch | None = None) -> Lock:
    """A complete, current lock of a recipe."""
    bound = with_arch(found, arch or found.target.arch)
    request = lock_request(bound)
    tag = f"cp{bound.target.python.replace('.', '')}"
    content = packages(bound.target.arch.machine, tag)
    return Lock(found.name, bound.target.python, bound.target.arch, request.digest, EXCLUDE_NEWER, "uv 0.9.0", content)


def tools(found: Catalog, python: str = "3.11", arch: Arch = Arch.AMD64) -> Lock:
    """The lock of the build tools."""
    request = tools_request(found, python, arch)
    content = (
        package("setuptools", "80.0.0"),
        package("uv", "0.9.0", file=f"uv-0.9.0-py3-none-manylinux_2_17_{arch.machine}.whl", size=20_000_000),
    )
    return Lock(request.profile, python, arch, request.digest, EXCLUDE_NEWER, "uv 0.9.0", content)


def inputs(found: Recipe, **changes: object) -> Inputs:
    """What `make_plan` takes beside the recipe, on an amd64 host."""
    mine = Inputs(
        locks={arch: lock(found, arch) for arch in Arch},
        tools=tools(catalog(), found.target.python),
        templates={"tools/common/stage.py": "templates"},
        build_arch=Arch.AMD64,
        standin=standin(),
        table=catalog().compatibility,
    )
    return replace(mine, **changes)


def plan(options: Options | None = None, **changes: object) -> Plan:
    """A plan of the profile `stack`."""
    found = recipe(options)
    return make_plan(found, inputs(found, **changes))
