"""What compose, Kubernetes and KubeRay say to a file, by their own schemas, without any of them."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from importlib import resources
from typing import Any

import jsonschema
import kubernetes_validate
from kubernetes_validate import utils

# The oldest and the newest that kubernetes-validate knows and clusters run.
KUBERNETES = ("1.25", "1.37")


@cache
def _brought(name: str) -> jsonschema.protocols.Validator:
    """A schema of others, as check-jsonschema brings it."""
    path = resources.files("check_jsonschema") / f"builtin_schemas/vendor/{name}.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    return jsonschema.validators.validator_for(schema)(schema)


def compose_faults(value: dict[str, Any]) -> list[str]:
    """What the Compose specification says against a file."""
    return [f"{error.json_path}: {error.message}" for error in _brought("compose-spec").iter_errors(value)]


def ci_faults(value: dict[str, Any], service: str) -> list[str]:
    """What the published schema of a CI service (`github-workflows`, `gitlab-ci`) says against a file."""
    return [f"{error.json_path}: {error.message}" for error in _brought(service).iter_errors(value)]


# Each call of `validate` reads its schemas again: megabytes.
utils.schema_contents = cache(utils.schema_contents)


def kubernetes_faults(value: dict[str, Any]) -> list[str]:
    """What Kubernetes' own schemas say against an object; a field that they have not is a fault."""
    found = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(value, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version}: {error.json_path}: {error.message}")
    return found


_COUNT = {"type": "integer", "minimum": 0}
_GROUP = {
    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
    "template": {"type": "object"},
}
_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
# KubeRay's own schema stands in no package. So: what its API reference (ray.io/v1) has around the pods, by field, type
# and whether it must be there; the pods themselves, nine tenths of the file, go by Kubernetes' schema.
RAY = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "metadata": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,51}[a-z0-9])?$"},
                "labels": _LABELS,
                "annotations": _LABELS,
            },
            "additionalProperties": False,
        },
        "spec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "additionalProperties": False,
            "properties": {
                "rayVersion": {"type": "string"},
                "headGroupSpec": {
                    "type": "object",
                    "required": ["rayStartParams", "template"],
                    "properties": _GROUP,
                    "additionalProperties": False,
                },
                "workerGroupSpecs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
                        "properties": {
                            **_GROUP,
                            "groupName": {"type": "string"},
                            "replicas": _COUNT,
                            "minReplicas": _COUNT,
                            "maxReplicas": _COUNT,
                        },
                        "additionalProperties": False,
                    },
                },
            },
        },
    },
}


def ray_job_faults(value: dict[str, Any]) -> list[str]:
    """What KubeRay says against a RayJob (ray.io/v1): a RayCluster's spec, and how its command is submitted."""
    spec = dict(value["spec"])
    cluster = {**value, "kind": "RayCluster", "spec": spec.pop("rayClusterSpec")}
    known = {"entrypoint": str, "submissionMode": str, "shutdownAfterJobFinishes": bool}
    found = [f"spec.{name}" for name, one in spec.items() if not isinstance(one, known.get(name, ()))]
    return [*found, *ray_faults(cluster), *([] if value["kind"] == "RayJob" else ["kind"])]


def ray_faults(value: dict[str, Any]) -> list[str]:
    """What KubeRay and Kubernetes say against a RayCluster."""
    errors = jsonschema.Draft202012Validator(RAY).iter_errors(value)
    found = [f"{error.json_path}: {error.message}" for error in errors]
    spec = value.get("spec", {})
    for group in (spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", ())):
        template = deepcopy(group.get("template", {}))
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
        found += kubernetes_faults(pod)
    return found
