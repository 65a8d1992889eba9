"""The four stacks of the guides, as they stand in images/: their pins, their locks, and that the two agree.

Nothing is resolved here. The numbers of packages are those of resolutions made by hand beforehand, from the same lists
without what CANN imports; the sets were compared name by name when the locks were made.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cannery.catalog.catalog import Pin
from cannery.catalog.io.read import load_catalog
from cannery.compat.rules import check_recipe
from cannery.compat.subject import errors
from cannery.lock.lock import PROFILE_VIA, chain, parse_lock
from cannery.lock.request import lock_problems, lock_request
from cannery.plan.sources import source_steps
from cannery.recipe.environment import atb_abi
from cannery.recipe.recipe import Options, left_out, python_folders, tree_links
from cannery.recipe.select import select
from cannery.vocab import Arch, ComponentKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cannery.catalog.catalog import Catalog
    from cannery.lock.lock import Lock
    from cannery.recipe.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent.parent
# Profile -> Pythons that it is locked for.
STACKS = {
    "mindspeed-rl": ("3.10", "3.11"),
    "verl-npu": ("3.11", "3.10"),
    "verl-qwen3.5": ("3.11",),
    "verl-sglang": ("3.11",),
}
CELLS = [(name, python, arch) for name, pythons in STACKS.items() for python in pythons for arch in Arch]
# Where a Python has an image on another OS than the profile's.
OS_OF = {("verl-npu", "3.10"): "manylinux_2_28"}
CPU_INDEX = "pytorch-cpu"


@cache
def catalog() -> Catalog:
    return load_catalog(ROOT / "images")


@cache
def bound(name: str, python: str, arch: Arch) -> Recipe:
    options = Options(python=python, arch=str(arch), os=OS_OF.get((name, python)))
    return select(catalog(), name, options, Arch.AMD64)


@cache
def locked(name: str, python: str, arch: Arch) -> Lock:
    file = f"images/locks/{name}/py{python}-{arch}.txt"
    return parse_lock((ROOT / file).read_text(encoding="utf-8"), file)


def versions(lock: Lock) -> dict[str, str]:
    return {package.name: package.version for package in lock.packages}


def of_cann(recipe: Recipe) -> set[str]:
    """The names of what CANN imports."""
    return {canonicalize_name(Requirement(text).name) for text in recipe.base.line.python_packages}


def test_the_stacks_with_sources_have_these_pythons() -> None:
    found = {
        name: (profile.target.python, *profile.target.pythons)
        for name, profile in catalog().profiles.items()
        if name in STACKS and any(catalog().components[pin.name].kind.is_source for pin in profile.components)
    }
    assert found == STACKS
    assert all({*catalog().profiles[name].target.arch} == {*Arch} for name in STACKS)


# Packages of PyTorch's own index of which no other list has a hash (images/hashes.yaml).
UNPUBLISHED = {
    ("verl-npu", "3.10", Arch.AMD64): {"torch", "torchvision"},
    ("verl-qwen3.5", "3.11", Arch.AMD64): {"torchvision"},
}


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_a_lock_is_current(name: str, python: str, arch: Arch) -> None:
    lock, request = locked(name, python, arch), lock_request(bound(name, python, arch))
    assert lock_problems(lock, request, frozenset(catalog().indexes)) == ()


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_a_set_has_no_error(name: str, python: str, arch: Arch) -> None:
    recipe, lock = bound(name, python, arch), locked(name, python, arch)
    assert errors(check_recipe(recipe, catalog(), {arch: lock}, Arch.AMD64)) == ()


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_a_lock_is_complete_but_for_hashes_that_nobody_publishes(name: str, python: str, arch: Arch) -> None:
    open_ = {p.name: p.index for p in locked(name, python, arch).packages if not p.complete}
    assert set(open_) == UNPUBLISHED.get((name, python, arch), set())
    assert {*open_.values()} <= {CPU_INDEX}


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_torch_is_the_cpu_build_of_the_release_that_torch_npu_extends(name: str, python: str, arch: Arch) -> None:
    lock = locked(name, python, arch)
    torch, torch_npu = Version(versions(lock)["torch"]), Version(versions(lock)["torch-npu"])
    assert torch.release == torch_npu.release
    # On arm64 the default index has it, on x86-64 that one has a CUDA build.
    index = {package.name: package.index for package in lock.packages}["torch"]
    assert (torch.local, index) == ((None, "default") if arch is Arch.ARM64 else ("cpu", CPU_INDEX))


# Profile -> torch, torch_npu, and what would differ first if a guide's correction were lost.
KEY = {
    "mindspeed-rl": {
        "torch": "2.5.1",
        "torch-npu": "2.5.1",
        "transformers": "4.48.2",
        "tokenizers": "0.21.1",
        "ray": "2.42.1",
        "numpy": "1.26.4",
        "tensordict": "0.1.2",
        "latex2sympy2": "1.9.1",
        "antlr4-python3-runtime": "4.9.3",
        "hydra-core": "1.3.2",
        "outlines": "0.1.11",
    },
    "verl-npu": {
        "torch": "2.7.1",
        "torch-npu": "2.7.1",
        "torchvision": "0.22.1",
        "numpy": "1.26.0",
        "opencv-python-headless": "4.11.0.86",
        "xgrammar": "0.1.21",
        "compressed-tensors": "0.10.2",
        "tensordict": "0.9.1",
        "pyarrow": "22.0.0",
    },
    "verl-qwen3.5": {
        "torch": "2.8.0",
        "torch-npu": "2.8.0.post2",
        "torchvision": "0.23.0",
        "triton-ascend": "3.2.0",
        "transformers": "4.57.6",
        "opencv-python-headless": "4.11.0.86",
        "xgrammar": "0.1.27",
        "fastapi": "0.123.10",
        "protobuf": "6.33.5",
        "wandb": "0.25.0",
        "setuptools": "80.10.2",
        "ray": "2.41.0",
        "grpcio": "1.76.0",
        "accelerate": "1.2.0",
        "tensordict": "0.10.0",
        "numpy": "1.26.4",
    },
    "verl-sglang": {
        "torch": "2.6.0",
        "torch-npu": "2.6.0.post3",
        "triton-ascend": "3.2.0rc4",
        "transformers": "4.56.1",
        "xgrammar": "0.1.24",
        "ray": "2.46.0",
        "torchao": "0.9.0",
        "openai": "1.99.1",
    },
}


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_key_versions(name: str, python: str, arch: Arch) -> None:
    found = versions(locked(name, python, arch))
    assert {key: str(Version(found[key]).public) for key in KEY[name]} == KEY[name]


# What the profiles leave out: NVIDIA's quantiser and what it brought, bindings of NVIDIA's driver. transformers is a
# source of verl-npu.
FEWER: dict[str, set[str]] = {
    "mindspeed-rl": set(),
    "verl-npu": {"nvidia-modelopt", "nvidia-ml-py", "pulp", "torchprofile", "transformers"},
    "verl-qwen3.5": {"arctic-inference"},
    "verl-sglang": {"pynvml", "nvidia-ml-py"},
}
# Sources that are releases have a file in the lock, as themselves.
RELEASED = {
    "mindspeed-rl": {"vllm": "vllm-0.7.3.tar.gz"},
    "verl-npu": {},
    "verl-qwen3.5": {"vllm": "vllm-0.13.0.tar.gz"},
    "verl-sglang": {"sglang": "sglang-0.5.2-py3-none-any.whl"},
}
# What CANN imports and nothing else in the set asks for, with what that asks for; and pip.
MORE = {
    "mindspeed-rl": {"cffi", "cython", "ml-dtypes", "pathlib2", "pip", "pycparser", "tornado"},
    "verl-npu": {"absl-py", "cython", "pathlib2", "tornado"},
    "verl-qwen3.5": {"cython", "ml-dtypes", "pathlib2", "tornado"},
    "verl-sglang": {"cython", "ml-dtypes", "pathlib2", "pip", "tornado"},
}
# What verl's setup.py asks for beside the list that the guide installs, ray[default] and tensorboard, with what these
# ask for; the numbers are of the guide's list. MindSpeed-RL asks for ray alone, its profile for ray[default].
ADDED = {
    "mindspeed-rl": {
        "aiohttp-cors", "cachetools", "colorful", "distlib", "google-api-core", "google-auth",
        "googleapis-common-protos", "opencensus", "opencensus-context", "proto-plus", "py-spy", "pyasn1",
        "pyasn1-modules", "rsa", "smart-open", "virtualenv", "wrapt",
    },
    "verl-sglang": {
        "absl-py", "aiohttp-cors", "cachetools", "colorful", "distlib", "google-api-core", "google-auth",
        "googleapis-common-protos", "grpcio", "markdown", "opencensus", "opencensus-context", "proto-plus", "py-spy",
        "pyasn1", "pyasn1-modules", "rsa", "smart-open", "tensorboard", "tensorboard-data-server", "virtualenv",
        "werkzeug", "wrapt",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "python", "arch", "number"),
    [
        ("mindspeed-rl", "3.10", Arch.ARM64, 156),
        ("mindspeed-rl", "3.10", Arch.AMD64, 157),
        ("verl-npu", "3.11", Arch.ARM64, 219),
        ("verl-npu", "3.11", Arch.AMD64, 219),
        ("verl-qwen3.5", "3.11", Arch.ARM64, 201),
        ("verl-qwen3.5", "3.11", Arch.AMD64, 201),
        ("verl-sglang", "3.11", Arch.ARM64, 149),
        ("verl-sglang", "3.11", Arch.AMD64, 149),
    ],
)
def test_a_set_is_as_large_as_the_one_resolved_by_hand(name: str, python: str, arch: Arch, number: int) -> None:
    via = {p.name: p.via for p in locked(name, python, arch).packages}
    assert not FEWER[name] & {*via}
    assert {name: via[name] for name in MORE[name] if via[name] not in {(PROFILE_VIA,), ("cffi",)}} == {}
    assert MORE[name] <= {*of_cann(bound(name, python, arch)), "pip", "pycparser"}
    added = ADDED.get(name, set())
    assert added <= {*via}
    assert len(via) == number - len(FEWER[name]) + len(MORE[name]) + len(RELEASED[name]) + len(added)


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_a_release_is_in_the_lock_by_the_file_that_is_built_or_installed(name: str, python: str, arch: Arch) -> None:
    recipe, packages = bound(name, python, arch), locked(name, python, arch).packages
    sources = {chosen.package for chosen in recipe.sources}
    assert {p.name: p.file for p in packages if p.name in sources} == RELEASED[name]


def test_the_arches_of_a_stack_differ_in_one_package_alone() -> None:
    differ = {
        (name, python): {*versions(locked(name, python, Arch.AMD64))} ^ {*versions(locked(name, python, Arch.ARM64))}
        for name, pythons in STACKS.items()
        for python in pythons
    }
    # vLLM 0.7.3 asks for xgrammar on x86-64 alone.
    assert differ.pop(("mindspeed-rl", "3.10")) == {"xgrammar"}
    assert differ.pop(("mindspeed-rl", "3.11")) == {"xgrammar"}
    assert set().union(*differ.values()) == set()


@pytest.mark.parametrize(
    ("name", "package", "path"),
    [
        ("mindspeed-rl", "word2number", ("mindspeed-rl", "word2number")),
        ("mindspeed-rl", "linear-operator", ("mindspeed", "gpytorch", "linear-operator")),
        ("mindspeed-rl", "setuptools-scm", ("vllm-ascend", "setuptools-scm")),
        ("verl-npu", "zarr", ("megatron-core", "zarr")),
        ("verl-npu", "xgrammar", ("vllm", "xgrammar")),
        ("verl-npu", "pytest-mock", ("megatron-core", "pytest-mock")),
        ("verl-npu", "safetensors", ("transformers", "safetensors")),
        ("verl-qwen3.5", "anthropic", ("vllm", "anthropic")),
        ("verl-sglang", "modelscope", ("sglang", "modelscope")),
        ("verl-sglang", "mathruler", ("verl", "mathruler")),
        ("verl-sglang", "pip", ("pip",)),
    ],
)
def test_a_chain_leads_from_a_source_to_what_it_brings(name: str, package: str, path: tuple[str, ...]) -> None:
    assert chain(locked(name, "3.11", Arch.ARM64).packages, package) == path


# Profile -> sources by component: the version that they call themselves, and the commit or the release.
SOURCES = {
    "mindspeed-rl": {
        "apex": ("0.1+ascend", "4ef930c1c884fdca5f472ab2ce7cb9b505d26c1a"),
        "vllm": ("0.7.3", "0.7.3"),
        "vllm-ascend": ("0.7.3rc2.dev5", "0713836e95fe993feefe334945b5b273e4add1f1"),
        "megatron-lm": ("0.8.0", "baf94af3c667248865f23df73b9fb8e2395e6fd0"),
        "mindspeed": ("0.8.0", "0dfa0035ec54d9a74b2f6ee2867367df897299df"),
        "mindspeed-llm": ("0.0.0.dev20250326", "421ef7bcb83fb31844a1efb688cde71705c0526e"),
        "mindspeed-rl": ("2.0.0", "62e9928ae89d9570f659b46e816bc55e1191b5e7"),
    },
    "verl-npu": {
        "vllm": ("0.10.1", "38217877aa70041c0115ee367b75197af9cbc5ad"),
        "vllm-ascend": ("0.10.0rc2.dev53", "1de16ead8eecfec8903ec1b330b27a4fa2593c35"),
        "transformers-src": ("4.56.0.dev0", "8365f70e9259c21058bf18f876006f945d2a99de"),
        "megatron-lm": ("0.12.1", "a845aa7e12b3a117e24c2352b9e3e60bad2e3a17"),
        "mindspeed": ("0.12.1", "1cdd0abd75e40936ad31721c092f57c695dd72c4"),
        "verl-src": ("0.5.0.dev0", "796871d7d092f7cbc6a64e7f4a3796f7a2217f5e"),
        "verl-npu": ("0.0.1", "09b8c1253af02abf62f9056e3a4e5cba78b03d7a"),
    },
    "verl-qwen3.5": {
        "vllm": ("0.13.0", "0.13.0"),
        "vllm-ascend": ("0.13.0", "6281c1207a7a499e9f23a42b3a1e7027469f2b10"),
        "verl-src": ("0.8.0.dev0", "b178a3cd56f58b2d502255daba591e92833930a7"),
    },
    "verl-sglang": {
        "sglang": ("0.5.2", "0.5.2"),
        "torch-memory-saver": ("0.0.8", "41ba5d7401ab7789d182dae5fe3cda92335e95e7"),
        "verl-src": ("0.5.0.dev0", "f50e5c2e8f11201c9759d1103464ff1653231ab8"),
    },
}


@pytest.mark.parametrize("name", STACKS)
def test_sources_are_pinned_as_the_guides_mean(name: str) -> None:
    recipe = bound(name, "3.11", Arch.ARM64)
    assert {c.name: (c.version, c.commit or c.release) for c in recipe.sources} == SOURCES[name]
    assert all(c.known for c in recipe.sources)
    # From git, and so no package of the lock: a distribution of that name on an index is another one.
    assert not {c.package for c in recipe.sources if c.commit} & {*versions(locked(name, "3.11", Arch.ARM64))}


def unmet(name: str, python: str, arch: Arch) -> Iterator[str]:
    """What sources ask for and the set does not hold."""
    recipe = bound(name, python, arch)
    found = {c.package: c.version for c in recipe.sources if c.version} | versions(locked(name, python, arch))
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": arch.machine,
        "sys_platform": "linux",
    }
    for source in recipe.sources:
        assert source.known is not None
        for text in source.known.requires:
            wanted = Requirement(text)
            version = found.get(canonicalize_name(wanted.name))
            if wanted.marker is not None and not wanted.marker.evaluate(environment):
                continue
            if version is None or not wanted.specifier.contains(version, prereleases=True):
                yield f"{source.name}: {wanted}, {version}"


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_sources_get_what_they_ask_for_but_where_the_profile_bends_it(name: str, python: str, arch: Arch) -> None:
    wanted = {
        "mindspeed-rl": {"mindspeed: tokenizers<=0.20.3, 0.21.1"},
        "verl-npu": {
            "vllm-ascend: torch-npu==2.7.1.dev20250724, 2.7.1",
            'megatron-lm: nvidia-modelopt[torch]>=0.23.2; sys_platform != "darwin", None',
        },
        "verl-qwen3.5": {"vllm-ascend: arctic-inference==0.1.1, None"},
        "verl-sglang": {
            "sglang: pynvml, None",
            "sglang: timm==1.0.16, None",
            "verl-src: torchvision==0.20.1, None",
            "verl-src: transformers==4.52.4, 4.56.1",
        },
    }
    assert {*unmet(name, python, arch)} == wanted[name]


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_sdists_are_the_ones_that_have_no_wheel(name: str, python: str, arch: Arch) -> None:
    sdists = {f"{p.name}=={p.version}" for p in locked(name, python, arch).packages if p.is_sdist}
    more = {
        "mindspeed-rl": {"word2number==1.1", "vllm==0.7.3"},
        "verl-npu": {"pylatexenc==2.10"},
        "verl-qwen3.5": {"pylatexenc==2.10", "vllm==0.13.0"},
        "verl-sglang": {"pylatexenc==2.10"},
    }
    if (name, python) == ("verl-npu", "3.10"):
        # Megatron-LM's zarr, the last for that Python.
        more[name] |= {"asciitree==0.3.3", *(["numcodecs==0.13.1"] if arch is Arch.ARM64 else [])}
    assert sdists == {"antlr4-python3-runtime==4.9.3", *more[name]}


@pytest.mark.parametrize(("name", "python", "arch"), CELLS)
def test_no_resolver_fell_back_to_ancient_releases(name: str, python: str, arch: Arch) -> None:
    found = versions(locked(name, python, arch))
    assert Version(found["datasets"]) >= Version("2.16")
    assert Version(found["wandb"]) >= Version("0.18")
    assert Version(found["setuptools"]) < Version("81")


def test_a_later_date_lets_in_what_the_guide_could_not_name_yet() -> None:
    request = lock_request(bound("verl-sglang", "3.11", Arch.ARM64))
    assert request.package_dates == (("torch-npu", "2026-03-01"), ("triton-ascend", "2025-11-15"))
    assert request.exclude_newer == "2025-09-30"


def test_verl_npu_patches_the_commits_that_its_profile_pins() -> None:
    recipe = bound("verl-npu", "3.11", Arch.ARM64)
    commits = {c.name: c.commit for c in recipe.sources}
    patches = next(c.known for c in recipe.sources if c.name == "verl-npu")
    assert patches is not None
    assert {name: list(known) for name, known in patches.patches.items()} == {
        "verl-src": [commits["verl-src"]],
        "transformers-src": [commits["transformers-src"]],
    }


@pytest.mark.parametrize("name", STACKS)
def test_what_a_component_is_built_after_stands_before_it(name: str) -> None:
    order = [pin.name for pin in catalog().profiles[name].components]
    pairs = {
        (before, pin)
        for pin in order
        for before in catalog().components[pin].after
        if before not in order[: order.index(pin)]
    }
    assert pairs == set()


def test_every_name_that_a_component_refers_to_exists() -> None:
    sources = [c for c in catalog().components.values() if c.kind.is_source]
    assert len(sources) == 13
    for component in sources:
        known = [*component.revisions.values(), *component.releases.values()]
        names = {*component.after, *(name for one in known for name in one.patches)}
        assert names <= {*catalog().components}
        assert {*component.hosts} <= {*catalog().hosts}


def test_projects_that_stand_in_a_folder_of_their_repository() -> None:
    folders = {name: component.subdirectory for name, component in catalog().sources.items() if component.subdirectory}
    assert folders == {
        "verl-npu": "verl_npu",
        "torch-memory-saver": "contrib/torch_memory_saver/python",
        "sgl-kernel-npu": "python/sgl_kernel_npu",
    }


def test_kernels_are_compiled_for_the_chip_of_the_target() -> None:
    component = catalog().components["vllm-ascend"]
    assert (component.kind, component.soc_variable) == (ComponentKind.NATIVE, "SOC_VERSION")
    assert component.build_env == {"COMPILE_CUSTOM_KERNELS": "1"}
    assert [str(chip) for chip in component.releases["0.13.0"].chips] == ["910b"]


def with_sglangs_kernels(chip: str, cann: str = "8.3.rc1", base: str | None = None) -> Recipe:
    """verl-sglang with sgl-kernel-npu behind torch-npu, as its file says to add it."""
    profile = catalog().profiles["verl-sglang"]
    (commit,) = catalog().components["sgl-kernel-npu"].revisions
    pins = [*profile.components]
    pins.insert([pin.name for pin in pins].index("torch-npu") + 1, Pin(name="sgl-kernel-npu", commit=commit))
    mine = profile.model_copy(update={"components": tuple(pins)})
    data = replace(catalog(), profiles={**catalog().profiles, "mine": mine})
    return select(data, "mine", Options(chip=chip, cann=cann, arch="arm64", base=base), Arch.ARM64)


def test_sglangs_kernels_are_in_no_profile_and_work_on_a3_alone() -> None:
    name = "sgl-kernel-npu"
    assert not [stack for stack, profile in catalog().profiles.items() if name in {p.name for p in profile.components}]
    here = [f for f in check_recipe(with_sglangs_kernels("910b"), catalog()) if name in f.what]
    assert [(f.code, f.what) for f in errors(here)] == [
        ("chip", "sgl-kernel-npu does not work on chip 910b: it is for a3")
    ]
    assert not errors([f for f in check_recipe(with_sglangs_kernels("a3"), catalog()) if name in f.what])


@pytest.mark.parametrize(
    ("cann", "home"),
    [("8.3.rc1", "/usr/local/Ascend/ascend-toolkit/latest"), ("8.5.0", "/usr/local/Ascend/cann-8.5.0")],
)
def test_sglangs_kernels_are_made_by_cmake_for_the_chip_and_with_cann_where_this_line_has_it(
    cann: str, home: str
) -> None:
    recipe = with_sglangs_kernels("a3", cann)
    lock = locked("verl-sglang", "3.11", Arch.ARM64)
    steps = {step.name: step for step in source_steps(recipe, lock, catalog().chips["a3"].socs, {})}
    configure, build = steps["sgl-kernel-npu"].before
    assert configure[:5] == ("cmake", "-S", ".", "-B", "build")
    assert {"-DSOC_VERSION=ascend910_9391", f"-DASCEND_HOME_PATH={home}", "-DBUILD_DEEPEP_MODULE=OFF"} <= {*configure}
    assert build == ("cmake", "--build", "build", "--parallel", "{jobs}")
    tools = {canonicalize_name(Requirement(text).name) for text in catalog().tools.requirements}
    (known,) = catalog().components["sgl-kernel-npu"].revisions.values()
    assert {*known.build_requires} <= tools


def test_a_stand_in_goes_without_sglangs_kernels_and_says_why() -> None:
    lacking = {one.name: one for one in left_out(with_sglangs_kernels("a3", base="standin"))}
    assert lacking["sgl-kernel-npu"].reason.startswith("kernels for CANN's own compiler")
    assert lacking["sgl-kernel-npu"].modules == ("sgl_kernel_npu",)


def test_atb_has_the_abi_of_torch_npu_on_both_arches_whatever_the_base_names() -> None:
    named = {name: bound(name, "3.11", Arch.ARM64).base.tag.atb_abi for name in STACKS}
    assert named == {"mindspeed-rl": 0, "verl-npu": 0, "verl-qwen3.5": 1, "verl-sglang": 0}
    found = {name: tuple(atb_abi(bound(name, "3.11", arch)) for arch in (Arch.AMD64, Arch.ARM64)) for name in STACKS}
    assert found == {"mindspeed-rl": (0, 0), "verl-npu": (1, 1), "verl-qwen3.5": (1, 1), "verl-sglang": (0, 1)}


def test_no_profile_and_no_component_names_atb_by_hand() -> None:
    envs = [*catalog().profiles.values(), *catalog().components.values()]
    assert not [value for one in envs for value in one.env.values() if "/atb/" in value]


def test_trees_are_on_pythonpath_and_lead_to_each_other_as_the_guides_say() -> None:
    recipes = {name: bound(name, "3.11", Arch.ARM64) for name in STACKS}
    assert {name: python_folders(recipe) for name, recipe in recipes.items() if python_folders(recipe)} == {
        "mindspeed-rl": ("/opt/src/megatron-lm", "/opt/src/mindspeed-llm", "/opt/src/mindspeed-rl"),
        "verl-npu": ("/opt/src/megatron-lm",),
    }
    examples = "/opt/src/verl-npu/tests/verl_examples"
    assert {name: dict(tree_links(recipe)) for name, recipe in recipes.items() if dict(tree_links(recipe))} == {
        "mindspeed-rl": {
            "/opt/src/mindspeed-rl/megatron": "/opt/src/megatron-lm/megatron",
            "/opt/src/mindspeed-rl/mindspeed": "/opt/src/mindspeed/mindspeed",
            "/opt/src/mindspeed-rl/mindspeed_llm": "/opt/src/mindspeed-llm/mindspeed_llm",
        },
        "verl-npu": {f"/opt/src/verl-src/{name}": f"{examples}/{name}" for name in ("configs", "dapo", "grpo")},
    }


def test_every_component_with_a_module_is_imported() -> None:
    silent = {name for name, one in catalog().components.items() if not one.imports}
    others = {name for name, one in catalog().components.items() if not one.kind.is_package}
    # mbridge 0.15.1 imports Transformer Engine, which is there after MindSpeed's adaptor alone.
    # static.pip-check runs pip.
    assert silent == others | {"mbridge", "pip"}


def test_python_3_10_of_verl_npus_guide_has_an_image_of_its_own() -> None:
    found = bound("verl-npu", "3.10", Arch.ARM64)
    assert found.base.references == ("quay.io/ascend/manylinux:8.3.rc1-910b-manylinux_2_28-py3.10",)
    assert (found.base.tag.python, atb_abi(found)) == ("3.10.18", 1)
    assert errors(check_recipe(found, catalog())) == ()
    (missing,) = errors(check_recipe(select(catalog(), "verl-npu", Options(python="3.10"), Arch.AMD64), catalog()))
    assert missing.fix.startswith("existing: 8.3.rc1-910b-manylinux_2_28-py3.10, ")
