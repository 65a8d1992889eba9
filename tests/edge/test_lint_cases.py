"""Commands and files from reports of November 2026, each as its user runs it, with the real catalog."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cannery import cli
from cannery.catalog.io import kept

ROOT = Path(__file__).resolve().parent.parent.parent
CATALOG = functools.cache(kept.load_catalog)
DRIVER = "/usr/local/Ascend/driver"
NODES = "--device=/dev/davinci0 --device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc"
FILES = " ".join(f"-v {path}:{path}" for path in (DRIVER, "/usr/local/dcmi", "/etc/ascend_install.info"))
SMI = "-v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi"
# The 950 has no devmm_svm, and its HCCL reads the whole driver tree.
NEW = f"docker run --shm-size 16g {NODES.replace('--device=/dev/devmm_svm ', '')} {FILES} {SMI}"
OLD = f"docker run --shm-size 16g {NODES} {FILES.replace(DRIVER, f'{DRIVER}/lib64')} -v {DRIVER}/version.info {SMI}"
ASCEND = f"docker run --shm-size 16g {NODES} {FILES.replace(DRIVER, '/usr/local/Ascend')} {SMI}"
ARRAY = f"""\
IMAGE=a/cann:9.0.0-310p-ubuntu22.04-py3.11
ARGS=(
    --rm  # and gone
    --shm-size=16g
    {NODES.replace("dav" + "inci0", "davinci2:/dev/davinci2")}
    {FILES} {SMI}
)
docker run "${{ARGS[@]}}" "${{IMAGE}}" python x.py
"""
TWO_ARRAYS = f"""\
DEVICES=({NODES.replace("davinci_manager", "dav_manager")})
MOUNTS=({FILES} {SMI})
docker run "${{DEVICES[@]}}" "${{MOUNTS[@]}}" --shm-size=16g -it a/b:1 bash
"""
COMPOSE = f"""\
x-npu: &npu
  volumes: [{", ".join(f'"{word}"' for word in f"{FILES} {SMI}".split() if word != "-v")}]
  ipc: host
  devices: [/dev/davinci0, /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc]
services:
  a2: {{<<: *npu, image: "mine:npu-910b-ubuntu"}}
  new: {{<<: *npu, image: "mine:npu-950-ubuntu", devices: [/dev/davinci0, /dev/davinci_manager, /dev/hisi_hdc]}}
"""
RAY = f"""\
apiVersion: ray.io/v1
kind: RayCluster
spec:
  headGroupSpec: {{template: {{spec: {{containers: [{{name: head, image: "x/y:1"}}]}}}}}}
  workerGroupSpecs:
    - template:
        spec:
          containers:
            - name: w
              image: x/y:1
              securityContext: {{privileged: PRIVILEGED}}
              resources: {{limits: {{huawei.com/Ascend910: "8"}}}}
              volumeMounts: [{{name: driver, mountPath: MOUNTED}}]
          volumes: [{{name: driver, hostPath: {{path: {DRIVER}}}}}]
"""
WORKFLOW = f"""\
jobs:
  t:
    runs-on: npu
    container:
      image: a/cann:9.1.0-910b-ubuntu22.04-py3.12
      options: >-
        --privileged --shm-size=64g
        {NODES}
        --volume={DRIVER}:{DRIVER}:ro
"""


@pytest.fixture(autouse=True)
def one_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read images/ once for all tests."""
    monkeypatch.setattr(kept, "load_catalog", CATALOG)


Findings = list[tuple[str, str, str]]
Lint = Callable[[str], tuple[int, Findings]]


def found(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Findings]:
    code = cli.main(("lint-run", *words, "--json"), ROOT)
    containers = json.loads(capsys.readouterr().out)["containers"]
    return code, [(f["severity"], f["code"], f["word"]) for one in containers for f in one["findings"]]


@pytest.fixture
def lint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lint:
    def run(text: str) -> tuple[int, Findings]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return found(capsys, "-")

    return run


@pytest.mark.parametrize(
    "tag", ["v0.26.0rc1-950", "v0.26.0rc1-950dt", "v1-cann9.1.0-950", "9.1.0-950-ubuntu22.04-py3.12"]
)
def test_01_a_line_for_a_950(lint: Lint, tag: str) -> None:
    assert lint(f"{NEW} quay.io/ascend/vllm-ascend:{tag} bash") == (0, [])
    code, findings = lint(f"{OLD} quay.io/ascend/vllm-ascend:{tag} bash")
    assert code == 3
    assert {(severity, code) for severity, code, _ in findings} >= {
        ("error", "run.driver.missing"),
        ("warning", "run.node.foreign"),
    }


def test_01_services_for_an_a2_and_a_950(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(COMPOSE)
    assert found(capsys, "--file", str(tmp_path / "c.yaml")) == (0, [])


def test_06_literal_arrays_are_read(lint: Lint) -> None:
    assert lint(ARRAY) == (0, [])
    assert lint(TWO_ARRAYS) == (3, [("error", "run.node.unknown", "--device=/dev/dav_manager")])


def test_06_an_array_that_cannot_be_read_is_one_note(lint: Lint) -> None:
    text = ARRAY.replace("ARGS=(", "ARGS=($(cat options)").replace("IMAGE=", "mapfile -t MORE < f\nIMAGE=")
    code, findings = lint(text.replace('"${ARGS[@]}"', '"${ARGS[@]}" "${MORE[@]}"'))
    assert code == 0
    assert [(severity, name) for severity, name, _ in findings] == [("note", "run.text.unread")] * 2


@pytest.mark.parametrize("image", ["triton-ascend-image:latest", "npu-dev:1", "my-ascend:2", "ubuntu:22.04"])
def test_07_a_hosts_cann_is_a_warning_whatever_the_images_name(lint: Lint, image: str) -> None:
    word = "-v /usr/local/Ascend:/usr/local/Ascend"
    assert lint(f"{ASCEND} {image} bash") == (0, [("warning", "run.mount.hides", word)])


def test_08_a_pasted_pull_is_named(lint: Lint) -> None:
    text = f"docker run -itd --shm-size=16g {NODES} {FILES} {SMI} --entrypoint=/bin/bash docker pull a/sglang:main-a3"
    assert lint(text) == (3, [("error", "run.image.pasted", "docker pull")])


@pytest.mark.parametrize(
    ("privileged", "mounted", "code", "named"),
    [
        ("false", DRIVER, 0, ("warning", "run.shm")),
        ("true", DRIVER, 0, ("warning", "run.privileged")),
        ("false", "/driver", 0, ("warning", "run.driver.missing")),
    ],
)
def test_14_a_raycluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, privileged: str, mounted: str, code: int, named: tuple[str, str]
) -> None:
    file = tmp_path / "ray.yaml"
    file.write_text(RAY.replace("PRIVILEGED", privileged).replace("MOUNTED", mounted))
    ended, findings = found(capsys, "--file", str(file))
    assert ended == code
    assert named in [(severity, name) for severity, name, _ in findings]


def test_14_a_workflow(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "ci.yaml"
    file.write_text(WORKFLOW)
    code, findings = found(capsys, "--file", str(file))
    assert code == 0
    assert {name for _, name, _ in findings} == {"run.driver.files", "run.driver.smi", "run.privileged"}
    file.write_text(WORKFLOW.replace("hisi_hdc", "hisi_hcd").replace("--privileged ", ""))
    code, findings = found(capsys, "--file", str(file))
    assert code == 3
    assert ("error", "run.node.unknown", "jobs.t.container.options: --device=/dev/hisi_hcd") in findings
