"""The user of a profile: what may be named, and what an image that has one is made with."""

from __future__ import annotations

import hashlib
import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from factories import catalog, compatibility, components, inputs, plan, profile, recipe, user_recipe
from pydantic import ValidationError

from cannery.catalog.catalog import ImageUser, Profile
from cannery.catalog.component import parse_component
from cannery.catalog.errors import faults
from cannery.catalog.io.read import load_catalog
from cannery.plan.make import make_plan
from cannery.plan.manifest import manifest
from cannery.recipe.environment import CACHE_HOME, CACHES, cache_folders, image_environment
from cannery.render.render import DOCKERFILE, render
from tests.golden.test_render import ROOT, TEMPLATES

if TYPE_CHECKING:
    from cannery.recipe.recipe import Recipe

BASE = {"PATH": "/usr/local/python3.11.14/bin:/usr/bin", "PYTHONPATH": "/cann"}
PTH = "/opt/venv/lib/python3.11/site-packages/cannery-user.pth"
PIP_CONF, UV_TOML = "/opt/venv/pip.conf", "/opt/cannery/uv.toml"


def dockerfile(found: Recipe) -> str:
    return render(make_plan(found, inputs(found)), TEMPLATES, compatibility())[DOCKERFILE]


def test_a_name_alone_is_the_drivers_user() -> None:
    user = profile(user="HwHiAiUser").user
    assert user == ImageUser(name="HwHiAiUser", uid=1000, gid=1000)
    assert user.home == "/home/HwHiAiUser"
    assert profile(user={"name": "me", "uid": 1234}).user == ImageUser(name="me", uid=1234, gid=1000)
    assert profile().user is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("root", "root needs no user"),
        ("9lives", "'9lives' is not a name in /etc/passwd"),
        ("a:b", "is not a name in /etc/passwd"),
        ("a" * 33, "is not a name in /etc/passwd"),
        ({"name": "me", "uid": 0}, "1000"),
        ({"name": "me", "gid": 65534}, "60000"),
        ({"uid": 1000}, "name"),
        (1000, "user"),
    ],
)
def test_other_users_are_refused_in_words(value: object, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        profile(user=value)
    (fault,) = faults(caught.value, Profile)
    assert says in f"{'.'.join(map(str, fault.path))} {fault.what}"


def test_every_cache_has_a_place_that_the_image_makes() -> None:
    found = user_recipe()
    folders = cache_folders(found)
    assert folders["XDG_CACHE_HOME"] == CACHE_HOME
    assert folders["TORCH_EXTENSIONS_DIR"] == f"{CACHE_HOME}/torch_extensions"
    assert not {"VLLM_CACHE_ROOT"} & folders.keys(), "no vllm is in it"
    made = re.findall(r"--writable (\S+)", dockerfile(found))
    assert made == sorted({*folders.values()})
    assert cache_folders(recipe()) == {}


def test_caches_of_what_is_in_the_image_alone() -> None:
    vllm = parse_component({"kind": "wheels", "summary": "serves"})
    names = [{"name": "torch", "version": "2.9.0"}, {"name": "vllm"}]
    data = catalog(components={**components(), "vllm": vllm}, profiles={"stack": profile(user="me", components=names)})
    assert cache_folders(recipe(found=data))["VLLM_CONFIG_ROOT"] == f"{CACHE_HOME}/vllm/config"
    alone = catalog(profiles={"stack": profile(user="me", components=[{"name": "ray"}])})
    assert cache_folders(recipe(found=alone)).keys() == CACHES.keys()


def test_python_is_the_venvs_and_what_pip_brings_comes_before_it() -> None:
    env = image_environment(user_recipe(), BASE)
    assert env["PATH"] == "/opt/venv/bin:/opt/user/bin:/usr/local/python3.11.14/bin:/usr/bin"
    assert env["PYTHONPATH"] == "/cann:/opt/user/lib/python3.11/site-packages"
    assert "PIP_PYTHON" not in env, "it would rule over the pip of a user's own environment too"
    assert "HOME" not in env, "login shells have the home of whoever logs in"
    assert image_environment(user_recipe(), {"PATH": "/bin"})["PYTHONPATH"] == "/opt/user/lib/python3.11/site-packages"
    root = image_environment(recipe(), BASE)
    assert not {"PIP_PYTHON", "XDG_CACHE_HOME"} & root.keys()
    assert "/opt/user" not in f"{root}"


def test_a_profiles_own_value_wins() -> None:
    data = catalog(profiles={"stack": profile(user="me", env={"HF_HOME": "/models"})})
    assert image_environment(recipe(found=data), BASE)["HF_HOME"] == "/models"


def test_the_manifest_says_who_runs_it_and_what_has_to_be_writable() -> None:
    found = user_recipe(user={"name": "me", "uid": 1234, "gid": 1235})
    files = render(made := make_plan(found, inputs(found)), TEMPLATES, compatibility())
    told = manifest(made, compatibility())
    assert told["user"] == {"uid": 1234, "gid": 1235, "name": "me", "home": "/home/me"}
    assert told["checks"]["writable"] == sorted(cache_folders(found))
    digests = {path: hashlib.sha256(files[f"rootfs{path}"].encode()).hexdigest() for path in (PTH, PIP_CONF, UV_TOML)}
    link = {"path": "/usr/local/lib/libjemalloc.so.2", "sha256": None}
    own = [{"path": path, "sha256": f"sha256:{one}"} for path, one in digests.items()]
    assert told["checks"]["files"] == [link, *own]
    root = manifest(plan(), compatibility())
    assert (root["user"], root["checks"]["files"], "writable" in root["checks"]) == (None, [link], False)


def test_the_user_is_a_number_and_comes_after_every_layer() -> None:
    lines = dockerfile(user_recipe(user={"name": "me", "uid": 1234, "gid": 1235})).splitlines()
    assert lines.index("USER 1234") > max(i for i, line in enumerate(lines) if line.startswith(("COPY", "RUN")))
    assert {"ENV HOME=/home/me", "WORKDIR /home/me"} <= {*lines}
    assert not [line for line in dockerfile(recipe()).splitlines() if line.startswith(("USER", "WORKDIR"))]


def test_pip_and_uv_are_told_where_to_install_and_uv_what_is_there() -> None:
    found = user_recipe()
    made = make_plan(found, inputs(found))
    files = render(made, TEMPLATES, compatibility())
    assert files[f"rootfs{PIP_CONF}"] == "[global]\npython = /opt/user/bin/python\n"
    told = tomllib.loads(files[f"rootfs{UV_TOML}"])
    assert told["pip"] == {"python": "/opt/user/bin/python"}
    names = {package.name for package in made.lock.packages} | {step.package for step in made.sources}
    assert "torch" in names
    assert told["exclude-dependencies"] == sorted(names)
    root = render(plan(), TEMPLATES, compatibility())
    assert not {f"rootfs{PIP_CONF}", f"rootfs{UV_TOML}"} & root.keys()


def test_another_number_is_another_system_layer_and_the_same_wheels() -> None:
    one, two, root = (
        {layer.name: layer.digest for layer in make_plan(r, inputs(r)).layers}
        for r in (user_recipe(), user_recipe(user={"name": "HwHiAiUser", "uid": 1001}), recipe())
    )
    differ = {name for name, digest in one.items() if digest != two[name]}
    assert differ == {"system", "files"}
    assert {name for name, digest in one.items() if digest != root[name]} == {"system", "files"}


def test_the_manifest_names_each_program_that_is_called_at_run_time_once() -> None:
    parts = components()
    parts |= {name: parts[name].model_copy(update={"programs": ("make", "g++")}) for name in ("torch", "ray")}
    found = recipe(found=catalog(components=parts))
    assert manifest(make_plan(found, inputs(found)), compatibility())["checks"]["programs"] == ["g++", "make"]
    assert "programs" not in manifest(plan(), compatibility())["checks"]


def test_what_mindspeed_and_megatron_compile_with_stays_in_their_images() -> None:
    """Fact T27."""
    data = load_catalog(ROOT / "images")
    called = {name for name, component in data.components.items() if {"g++", "make"} & {*component.programs}}
    assert {"mindspeed", "megatron-lm"} <= called
    for name, stack in data.profiles.items():
        named = {pin.name for pin in stack.components}
        assert not (called & named) or "compilers" in named, name
