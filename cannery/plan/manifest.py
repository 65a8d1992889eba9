"""Files that Cannery adds to an image: its manifest, and settings that connect /opt/venv, pip and uv to the overlay.

docs/manifest.schema.json describes /opt/cannery/manifest.json. Layers belong to root (owner 0:0), so that the same lock
gives the same layers for every user. Programs write to other folders at run time (`cannery.recipe.environment`).
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from cannery import __version__
from cannery.catalog.component import Native
from cannery.catalog.target import package_name
from cannery.recipe.environment import OVERLAY, atb_abi, cache_folders, overlay_site
from cannery.recipe.recipe import unlinked
from cannery.util.addresses import BASE_DIGEST, BASE_NAME, digest_of, split_digest
from cannery.vocab import BaseKind, Install, size_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.catalog.compatibility import Compatibility
    from cannery.plan import Plan
    from cannery.plan.sources import Patch, SourceStep
    from cannery.recipe.recipe import ChosenSource, Recipe


MANIFEST_SCHEMA = 1
# The hash of a wheel whose hash is not known yet.
UNKNOWN = "0" * 64
MANIFEST_PATH = "/opt/cannery/manifest.json"
# The same names as in the verify script.
TRAINERS = ("verl", "mindspeed-rl")
ENGINES = ("vllm", "sglang")
# Every Python of /opt/venv runs it at its start, so that editable installs in the overlay work there too.
OVERLAY_PTH = "cannery-user.pth"
# Only the pip of /opt/venv reads it. The variable PIP_PYTHON would also affect the pip of every other environment
# (`python -m venv`, Ray's runtime_env), and send its packages to the overlay.
PIP_SETTINGS = "/opt/venv/pip.conf"
# uv does not see the packages of /opt/venv. Without these settings it would install torch again, from another index.
UV_SETTINGS = "/opt/cannery/uv.toml"


def manifest(plan: Plan, compatibility: Compatibility) -> dict[str, Any]:
    """Return the manifest of the planned image as JSON values."""
    recipe, user = plan.recipe, plan.recipe.profile.user
    torch_npu = {package.version for package in plan.lock.packages if package.name == "torch-npu"}
    reasons = _not_importable(plan)
    patches = [_patch(tree.component, patch, reasons) for tree in plan.patched for patch in tree.patches]
    group_of = {package.name: group for group in plan.groups for package in group.packages}
    return {
        "schema": MANIFEST_SCHEMA,
        "tool": {"name": "cannery", "version": __version__},
        "profile": recipe.name,
        "plan": plan.digest,
        "target": recipe.target.words,
        "base": _base(plan),
        "wheels": [
            {
                "name": package.name,
                "version": package.version,
                "hash": f"sha256:{package.sha256 or UNKNOWN}",
                "group": group_of[package.name].name,
                "file": package.file,
                "built": package.is_sdist,
            }
            for package in plan.lock.packages
            if package.name in group_of
        ],
        "sources": [_source(plan, step) for step in plan.sources],
        "patches": patches,
        "patches_left_out": [asdict(one) for one in plan.not_patched],
        "env": dict(plan.env),
        "labels": labels(plan),
        "checks": _checks(plan),
        "shm_min_bytes": size_bytes(recipe.profile.shm_size),
        "user": {"uid": user.uid, "gid": user.gid, "name": user.name, "home": user.home} if user else None,
        **compatibility.facts(torch_npu),
        "may_skip": sorted(
            {
                *recipe.profile.may_skip.get(recipe.base.kind, ()),
                *_skipped(plan),
                *(f"import.{file['module']}" for patch in patches for file in patch["files"] if file.get("standin")),
                *train_skips(recipe),
                *(("npu.network",) if recipe.profile.several_hosts else ()),
            }
        ),
        **({"several_hosts": True} if recipe.profile.several_hosts else {}),
        "left_out": [asdict(lacking) for lacking in plan.left_out],
        **({"substitutes": [s.model_dump() for s in recipe.substitutes]} if recipe.substitutes else {}),
        "forced": list(plan.forced),
        "overrides": [o.model_dump() for o in recipe.profile.overrides],
        "excludes": [e.model_dump() for e in recipe.profile.excludes],
    }


def manifest_text(plan: Plan, compatibility: Compatibility) -> str:
    """Return the manifest as it is in the image: JSON with sorted keys, indented by one space."""
    # It is `json.dumps(…, indent=1, sort_keys=True, ensure_ascii=False)`, which Python does not do in C.
    return to_json(_sorted(manifest(plan, compatibility)), indent=1).decode() + "\n"


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value


def labels(plan: Plan) -> dict[str, str]:
    """Return the labels of the image: its identity, its base, and whether it was forced."""
    recipe = plan.recipe
    reference, digest = split_digest(plan.base_reference)
    found = {
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.profile.summary,
        "org.opencontainers.image.version": str(plan.tag),
        BASE_NAME: reference,
        **({BASE_DIGEST: digest} if digest else {}),
        "org.cannery.version": __version__,
        "org.cannery.profile": recipe.name,
        "org.cannery.plan": plan.digest,
        "org.cannery.target": str(recipe.target),
        "org.cannery.base.kind": str(recipe.base.kind),
    }
    if plan.forced:
        found["org.cannery.forced"] = ",".join(plan.forced)
    if recipe.substitutes:
        found["org.cannery.substitutes"] = " ".join(f"{one.name}=={one.version}" for one in recipe.substitutes)
    if recipe.base.kind is BaseKind.STANDIN:
        found["org.cannery.warning"] = "stand-in base: no CANN inside, it can run nothing on an NPU"
    return found


def _source(plan: Plan, step: SourceStep) -> dict[str, Any]:
    """Return the manifest's record of a source. The version of a user's own tree is null."""
    is_own = step.release is None and step.content != step.commit
    (chosen,) = (c for c in plan.recipe.sources if c.name == step.name)
    # Only a build that gets the name of the chip makes kernels for it.
    has_kernels = step.native and _soc_variable(chosen) is not None
    return {
        "name": step.package,
        "component": step.name,
        "version": None if is_own else step.version,
        "install": str(step.install),
        "path": step.path if step.install is not Install.WHEEL else None,
        "repository": None,
        "commit": step.commit,
        "release": step.release,
        "dirty": step.dirty,
        "without": step.without,
        "chips": [str(plan.recipe.target.chip)] if has_kernels else [],
    }


def _patch(component: str, patch: Patch, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest's record of a patch and its files.

    `reasons` is {first part of a module: why it cannot be imported}.
    """
    return {
        "name": patch.name,
        "digest": patch.digest,
        "component": component,
        "from": patch.origin,
        "rev": patch.rev,
        "files": [
            {
                **asdict(file),
                **({"standin": reason} if (reason := reasons.get(file.module.partition(".")[0])) else {}),
            }
            for file in patch.files
        ],
    }


def _base(plan: Plan) -> dict[str, Any]:
    base = plan.recipe.base
    reference, digest = split_digest(plan.base_reference)
    return {
        "reference": reference,
        "digest": digest,
        "kind": str(base.kind),
        "python_home": f"/usr/local/python{base.tag.python}",
        "toolkit_home": base.line.toolkit_home,
        "set_env": list(base.line.set_env),
        "atb_abi": atb_abi(plan.recipe),
        "version_files": [
            {"path": file.at(plan.recipe.target.arch), "name": file.name, "version": plan.recipe.target.cann}
            for file in base.line.version_files
        ],
    }


def _checks(plan: Plan) -> dict[str, Any]:
    chosen, lacking = plan.recipe.chosen, {one.name for one in plan.left_out}
    # The programs that components in the image call at run time.
    programs = {name for c in chosen if c.package not in lacking for name in c.component.programs}
    # Reports of static.libraries about kernels that link CANN, which a stand-in does not have.
    modules = {item.module.partition(".")[0] for c in unlinked(plan.recipe) for item in c.component.imports}
    patterns = [rf"/site-packages/{re.escape(one)}/.* needs lib\S+, which is not found" for one in sorted(modules)]
    return {
        "imports": [
            {"component": c.name, **{name: value for name, value in item if value}}
            for c in chosen
            for item in c.component.imports
        ],
        "libraries": [path for c in chosen for path in c.component.libraries],
        "files": [
            # Verify follows links, so a dangling link is a missing file.
            *({"path": link.path, "sha256": None} for link in plan.links),
            *({"path": path, "sha256": digest_of(text.encode())} for path, text in overlay_files(plan).items()),
        ],
        "native": [],
        **({"library_allow": patterns} if patterns else {}),
        **({"writable": sorted(folders)} if (folders := cache_folders(plan.recipe)) else {}),
        **({"programs": sorted(programs)} if programs else {}),
        "pip_check_allow": [*plan.recipe.profile.pip_check_allow, *_expected_reports(plan)],
    }


def _expected_reports(plan: Plan) -> list[str]:
    """Return patterns of expected `pip check` reports: from overrides, excludes and left-out sources."""
    profile = plan.recipe.profile
    substituted = {one.name for one in plan.recipe.substitutes}
    overridden = {package_name(item.requirement) for item in profile.overrides}
    overridden |= {c.package for c in plan.recipe.chosen if c.name in substituted}
    excluded = sorted({package_name(e.requirement) for e in profile.excludes} | {o.name for o in plan.left_out})
    return [
        *(rf"(?i) has requirement {_any_spelling(name)}[^\w.-].*, but you have " for name in sorted(overridden)),
        *(rf"(?i) requires {_any_spelling(name)}, which is not installed" for name in excluded),
    ]


def _not_importable(plan: Plan) -> dict[str, str]:
    """Return {module: why it cannot be imported on the stand-in}; empty on any other base."""
    if plan.recipe.base.kind is not BaseKind.STANDIN:
        return {}
    return {i.module: i.standin for c in plan.recipe.chosen for i in c.component.imports if i.standin}


def _skipped(plan: Plan) -> list[str]:
    """Return the ids of checks that cannot pass: imports of left-out sources, and of kernels of a chip."""
    imports = [f"import.{module}" for lacking in plan.left_out for module in lacking.modules]
    imports += [f"import.{module}" for module in _not_importable(plan)]
    of_chips = {chosen.name for chosen in plan.recipe.sources if _soc_variable(chosen)}
    without = any(step.without for step in plan.sources if step.name in of_chips)
    return [*imports, *(["static.device-type"] if without else [])]


def _soc_variable(chosen: ChosenSource) -> str | None:
    return chosen.component.soc_variable if isinstance(chosen.component, Native) else None


def _any_spelling(name: str) -> str:
    return name.replace("-", "[-_.]+")


def trainer(recipe: Recipe) -> str:
    """Return the trainer for the level train: verl, mindspeed-rl, or "" for an image without one."""
    names = _names(recipe)
    return next((name for name in TRAINERS if name in names), "")


def train_skips(recipe: Recipe) -> tuple[str, ...]:
    """Return the checks of the level train that may be skipped, so that profiles do not have to name them.

    The step may be skipped on a stand-in, if the profile allows missing NPU nodes, and for verl without a rollout
    engine. The data of MindSpeed-RL may be skipped if its modules cannot be imported.
    """
    name, kind = trainer(recipe), recipe.base.kind
    if not name:
        return ()
    standin = kind is BaseKind.STANDIN
    no_npu = "npu.nodes" in recipe.profile.may_skip.get(kind, ())
    no_engine = name == "verl" and not _names(recipe) & {*ENGINES}
    modules = {item.module for chosen in recipe.chosen for item in chosen.component.imports if item.standin}
    no_data = standin and name == "mindspeed-rl" and "mindspeed_rl" in modules
    return (*(("train.data",) if no_data else ()), *(("train.step",) if standin or no_npu or no_engine else ()))


def _names(recipe: Recipe) -> set[str]:
    """Return the names of components and of their distributions."""
    return {name for chosen in recipe.chosen for name in (chosen.name, chosen.package)}


def overlay_files(plan: Plan) -> dict[str, str]:
    """Return {path in the image: text} of the settings that connect /opt/venv, pip and uv to the overlay.

    An image without a user has none. `uv pip` installs into the overlay and does not change the image's packages.
    """
    recipe = plan.recipe
    if recipe.profile.user is None:
        return {}
    path = f"/opt/venv/lib/python{recipe.target.python}/site-packages/{OVERLAY_PTH}"
    names = {package.name for package in plan.lock.packages} | {step.package for step in plan.sources}
    left = "".join(f'    "{name}",\n' for name in sorted(names))
    return {
        path: f"import site; site.addsitedir({overlay_site(recipe)!r})\n",
        PIP_SETTINGS: f"[global]\npython = {OVERLAY}/bin/python\n",
        UV_SETTINGS: f"# uv pip install --config-file {UV_SETTINGS} NAME\n"
        f"# puts NAME and what it needs into {OVERLAY}. What the image has already, listed here, is left as it is,\n"
        "# NAME too: for another release of one of these take `pip install`.\n"
        f"exclude-dependencies = [\n{left}]\n\n"
        f'[pip]\npython = "{OVERLAY}/bin/python"\n',
    }
