"""The guide's kustomization: its patches go into printed objects, and what comes out is valid for those who read it.

`kubectl apply -k` is not run. A JSON patch (RFC 6902) of `add` alone is a dozen lines.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from schemas import kubernetes_faults, ray_faults, ray_job_faults

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDENS = ROOT / "tests/golden/runs/a2-full"
(BLOCK,) = re.findall(
    r"^```yaml\n(.*?)^```", (ROOT / "docs/guides/kubernetes.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
KUSTOMIZATION = yaml.safe_load(BLOCK)
HEAD, WORKER = "/spec/headGroupSpec/template/spec", "/spec/workerGroupSpecs/0/template/spec"


def add(value: Any, path: str, new: object) -> None:  # noqa: ANN401
    *folders, name = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in folders:
        value = value[int(part)] if isinstance(value, list) else value[part]
    if isinstance(value, list):
        value.append(new) if name == "-" else value.insert(int(name), new)
    else:
        value[name] = new


def patched(form: str, moved: dict[str, str]) -> dict[str, Any]:
    """A printed object with the patches, whose paths begin otherwise where `moved` has it; "" leaves them out."""
    value: dict[str, Any] = yaml.safe_load((GOLDENS / f"{form}.yaml").read_text(encoding="utf-8"))
    for one in yaml.safe_load(KUSTOMIZATION["patches"][0]["patch"]):
        assert one.keys() == {"op", "path", "value"}
        assert one["op"] == "add"
        start = next((start for start in moved if one["path"].startswith(start)), "")
        if not start or moved[start]:
            add(value, moved.get(start, "") + one["path"].removeprefix(start), one["value"])
    return value


@pytest.mark.parametrize(
    ("form", "moved", "faults"),
    [
        ("raycluster", {}, ray_faults),
        ("rayjob", {"/spec": "/spec/rayClusterSpec"}, ray_job_faults),
        ("job", {HEAD: "/spec/template/spec", WORKER: ""}, kubernetes_faults),
        ("pod", {HEAD: "/spec", WORKER: ""}, kubernetes_faults),
    ],
)
def test_the_guides_patches_fit_what_is_printed(form: str, moved: dict[str, str], faults: Any) -> None:  # noqa: ANN401
    assert KUSTOMIZATION.keys() == {"resources", "patches"}
    assert KUSTOMIZATION["patches"][0]["target"] == {"kind": "RayCluster"}
    value = patched(form, moved)
    assert faults(value) == []
    assert value["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    text = yaml.safe_dump(value)
    pods = 1 if form in {"job", "pod"} else 2
    assert text.count("mountPath: /models") == text.count("claimName: models") == text.count("imagePullSecrets") == pods
