"""Render a plan into the text files of its folder: Dockerfile, bake file, group files, rootfs. Pure functions.

Every decision is in the plan, and the templates only write it down.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, Environment, StrictUndefined

from cannery.lock.lock import uv_platform
from cannery.plan import LayerKind
from cannery.plan.make import package_family
from cannery.plan.manifest import MANIFEST_PATH, labels, manifest_text, overlay_files
from cannery.recipe.environment import (
    CACHE_HOME,
    OVERLAY,
    cache_folders,
    docker_quote,
    profile_script,
    python_home,
    start_folder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.compatibility import Compatibility
    from cannery.lock.lock import LockedPackage
    from cannery.plan import Layer, Plan
    from cannery.plan.make import Group


DOCKERFILE, BAKE_FILE = "Dockerfile", "docker-bake.json"
TOOLS_FOLDER = "_tools"
# The secrets of a build: id → variable with the path of its file. The content would not fit: Linux limits a variable to
# 128 KiB, and a CA bundle is larger. The default is an empty file in the rendered folder, not /dev/null: since buildx
# 0.20, bake asks before it reads a file outside that folder, and fails without an answer (seen with 0.29).
SECRETS: Mapping[str, str] = {
    "apt_sources": "CANNERY_APT_SOURCES_FILE",
    "ca": "CANNERY_CA_FILE",
    # How many jobs compile at once: not secret, but no layer may depend on it.
    "jobs": "CANNERY_JOBS_FILE",
    # BuildKit's predefined arguments would be kept in its history, with passwords.
    "proxies": "CANNERY_PROXIES_FILE",
    "system_mirrors": "CANNERY_SYSTEM_MIRRORS_FILE",
}
NO_SECRET = "no-secret"  # noqa: S105 - the name of a file


def environment(templates: Mapping[str, str]) -> Environment:
    """Return the Jinja environment of {path below templates/: text}. A template is compiled once in a run."""
    return _environment(frozenset(templates.items()))


@lru_cache(maxsize=4)
def _environment(templates: frozenset[tuple[str, str]]) -> Environment:
    jinja = Environment(
        loader=DictLoader(dict(templates)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Dockerfiles, not HTML
        auto_reload=False,
    )
    jinja.filters["docker_quote"] = docker_quote
    jinja.filters["stage"] = stage_name
    return jinja


def stage_name(layer: Layer) -> str:
    """Return the name of the layer's build stage."""
    if layer.kind in {LayerKind.SOURCE, LayerKind.TREE}:
        return f"source-{layer.name}"
    return f"group-{layer.name}" if layer.kind in {LayerKind.GROUP, LayerKind.BUILT} else str(layer.kind)


def render(plan: Plan, templates: Mapping[str, str], compatibility: Compatibility) -> dict[str, str]:
    """Return {path in the rendered folder: text}; wheels are added when the folder is written."""
    files = {
        DOCKERFILE: _dockerfile(plan, templates),
        BAKE_FILE: _bake_file(plan),
        NO_SECRET: "",
        ".dockerignore": f"log\n{NO_SECRET}\n",
    }
    files |= {f"groups/{group.name}.txt": group_text(group) for group in plan.groups}
    patched = {tree.component: tree.files for tree in plan.patched}
    files |= {f"steps/{step.name}.json": step.text(patched.get(step.name, ())) for step in plan.sources}
    files |= {name: text for name, text in templates.items() if name.startswith("tools/")}
    files["rootfs/etc/profile.d/cannery.sh"] = profile_script(plan.env)
    files |= {f"rootfs{path}": text for path, text in files_layer(plan, templates, compatibility).items()}
    return dict(sorted(files.items()))


def files_layer(plan: Plan, templates: Mapping[str, str], compatibility: Compatibility) -> dict[str, str]:
    """Return {path in the image: text} of the layer `files`: the manifest and the verify script."""
    files = {name: text for name, text in templates.items() if name.startswith("rootfs/opt/")}
    files |= {f"rootfs{path}": text for path, text in overlay_files(plan).items()}
    files[f"rootfs{MANIFEST_PATH}"] = manifest_text(plan, compatibility)
    return {name.removeprefix("rootfs"): text for name, text in files.items()}


def wheel_paths(plan: Plan) -> dict[str, LockedPackage]:
    """Return {path in the rendered folder: the locked package whose file it is}."""
    paths: dict[str, LockedPackage] = {}
    for group in plan.groups:
        paths |= {f"wheels/{group.name}/{package.file}": package for package in group.packages if package.complete}
    by_file = {package.file: package for package in plan.lock.packages}
    return paths | {f"sources/{step.file}": by_file[step.file] for step in plan.sources if step.release}


def tool_paths(plan: Plan) -> dict[str, LockedPackage]:
    """Return {path in the rendered folder: the build tool whose file it is}."""
    return {f"wheels/{TOOLS_FOLDER}/{package.file}": package for package in plan.tools.packages}


def patched_files(plan: Plan) -> dict[str, bytes]:
    """Return {path in the rendered folder: content} of the files that patches change, without removed ones."""
    return {
        f"patched/{tree.component}/{file.after}": file.data
        for tree in plan.patched
        for file in tree.files
        if file.after is not None
    }


def group_text(group: Group) -> str:
    """Return a group's requirements, one package on each line, with its hash if it is known."""
    return "".join(
        f"{p.name}=={p.version}" + (f" --hash=sha256:{p.sha256}\n" if p.complete else "\n") for p in group.packages
    )


def _dockerfile(plan: Plan, templates: Mapping[str, str]) -> str:
    caches = {folder for folder in cache_folders(plan.recipe).values() if folder.startswith(f"{CACHE_HOME}/")}
    template = environment(templates).get_template("Dockerfile.j2")
    return template.render(
        plan=plan,
        steps={step.name: step for step in plan.sources},
        native=any(step.native for step in plan.sources),
        patched={tree.component for tree in plan.patched if tree.files},
        labels=labels(plan),
        family=package_family(plan.recipe),
        python_home=python_home(plan.recipe.base.tag),
        user=plan.recipe.profile.user,
        workdir=start_folder(plan.recipe),
        made_folder=plan.recipe.profile.workdir,
        overlay=OVERLAY,
        # Folders that every user can write to, parents first.
        writable=(CACHE_HOME, *sorted(caches)) if caches else (),
        venv_stage=str(LayerKind.VENV),
        platform=uv_platform(plan.recipe.target.arch),
    )


def _bake_file(plan: Plan) -> str:
    target: dict[str, Any] = {
        "context": ".",
        "dockerfile": DOCKERFILE,
        "target": "image",
        "platforms": [plan.recipe.target.arch.platform],
        "tags": list(plan.references),
        "args": {"SOURCE_DATE_EPOCH": str(plan.epoch)},
        # This machine's mirror serves the same image as FROM names.
        **({"contexts": {plan.base_reference: f"docker-image://{plan.base_source}"}} if plan.base_source else {}),
        "secret": [f"id={name},src=${{{variable}}}" for name, variable in SECRETS.items()],
        "attest": ["type=provenance,disabled=true"],
    }
    builds = any(layer.kind is LayerKind.SOURCE for layer in plan.layers)
    # The parts that BuildKit builds when Cannery builds the other layers itself.
    names = ["foundation", *(["sources"] if builds else [])]
    parts = {name: {"inherits": ["image"], "target": name, "tags": [f"cannery-{name}"]} for name in names}
    bake = {
        "variable": {variable: {"default": NO_SECRET} for variable in SECRETS.values()},
        "group": {"default": {"targets": ["image"]}},
        "target": {"image": target, **parts},
    }
    return json.dumps(bake, indent=2) + "\n"
