from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest

from cannery import cli

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((ROOT / "docs/lint-run-report.schema.json").read_text())
DRIVER = "/usr/local/Ascend/driver"
# What a user wrote: a node's name is mistyped, and the driver is not mounted (vllm-project/vllm-ascend issue 1440).
REPORTED = """\
export IMAGE=quay.io/ascend/vllm-ascend:v0.9.0rc2
docker run --rm \\
  --name vllm-ascend \\
  --device /dev/davinci0 \\
  --device /dev/dav_manager \\
  --device /dev/devmm_svm \\
  --device /dev/hisi_hdc \\
  -v /root/.cache:/root/.cache \\
  -it $IMAGE bash
"""
COMPOSE = """\
services:
  train:
    image: quickstart:8.5.0-910b-ubuntu22.04-py3.11
    privileged: true
    devices: ["/dev/davinci6", "/dev/davinci7"]
  web:
    image: nginx:1
"""


def lint(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(("lint-run", *words), ROOT)
    text = capsys.readouterr()
    assert "Traceback" not in text.out + text.err
    return code, text.out, text.err


def test_the_reported_command_both_faults_named_with_the_fix(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = lint(capsys, REPORTED)
    assert code == 3
    assert "error [run.node.unknown] --device /dev/dav_manager: no NPU host has a node /dev/dav_manager; " in out
    assert "did you mean /dev/davinci_manager?" in out
    assert f"error [run.driver.missing] {DRIVER}/lib64 is not mounted" in out
    assert f"fix: -v {DRIVER}/lib64:{DRIVER}/lib64:ro" in out
    assert out.endswith("errors: 2\n")


def test_json_and_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(REPORTED))
    code, out, _ = lint(capsys, "-", "--json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    assert (code, found["schema"], found["ok"]) == (3, 2, False)
    (container,) = found["containers"]
    assert set(container) == {"name", "findings"}
    first = container["findings"][0]
    assert (first["severity"], first["code"], first["word"]) == (
        "error",
        "run.node.unknown",
        "--device /dev/dav_manager",
    )


def test_a_compose_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(COMPOSE)
    code, out, _ = lint(capsys, "--file", str(file))
    assert code == 3  # the driver is not mounted
    assert "warning [run.privileged] services.train.privileged: true exposes every card of the host" in out
    assert "services.train: errors: 1, warnings: 3, notes: 1\n" in out
    assert "services.web: nothing to report\n" in out
    assert f"error [run.driver.missing] {DRIVER}/lib64 is not mounted (services.train.devices[0]: " in out


def test_a_command_without_an_image_is_one_finding_among_several(capsys: pytest.CaptureFixture[str]) -> None:
    text = "docker run --rm -it\ndocker run --rm quay.io/ascend/cann:8.5.0 bash"
    code, out, _ = lint(capsys, text)
    assert code == 3
    first, second = out.split("command 2: ")
    assert first.startswith("command 1: errors: 1\nerror [run.image.none] docker run: no image is named\n")
    assert "run.image.none" not in second
    code, out, _ = lint(capsys, text, "--json")
    table = json.loads(out)
    jsonschema.validate(table, SCHEMA)
    assert table["containers"][0]["findings"][0]["code"] == "run.image.none"
    code, out, err = lint(capsys, "docker run --rm -it")
    assert (code, out) == (2, "")
    assert "no image is named" in err


def test_several_files_and_those_that_are_not_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    base, over = tmp_path / "compose.yaml", tmp_path / "compose.override.yaml"
    base.write_text("include: [missing.yaml]\nservices: {a: {image: 'nginx:1'}}")
    over.write_text("services: {b: {gpus: all}}")
    code, out, _ = lint(capsys, "--file", str(base))
    assert code == 0
    assert "note [run.text.unread] include is not read" in out
    assert "docker compose config" in out
    assert out.endswith("errors: 0; not read: 1, see above\n")
    code, out, _ = lint(capsys, "--file", str(base), "--file", str(over), "--json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    assert code == 3
    assert [(one["name"], [f["code"] for f in one["findings"]]) for one in found["containers"]] == [
        ("services.a", ["run.text.unread"]),
        ("services.b", ["run.gpus"]),
    ]


def test_documents_of_one_file_keep_their_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    pod = "apiVersion: v1\nkind: Pod\nspec: {{containers: [{{name: {0}, image: {0}}}]}}\n"
    file.write_text(f"%YAML 1.2\n# two\n---\n{pod.format('a')}...\n--- # next\n{pod.format('b')}---\n")
    code, out, _ = lint(capsys, "--file", str(file), "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)["containers"]] == ["spec.containers.a", "spec.containers.b"]
    file.write_text("--- {jobs: {t: {container: 'a:1'}}}\n")
    assert [one["name"] for one in json.loads(lint(capsys, "--file", str(file), "--json")[1])["containers"]] == [
        "jobs.t.container"
    ]
    file.write_text(f"{pod.format('a')}---\nkind: [\n")
    code, _, err = lint(capsys, "--file", str(file))
    assert code == 2
    assert f"{file}:6" in err


def test_a_text_that_is_read_in_part_is_never_called_right(capsys: pytest.CaptureFixture[str]) -> None:
    text = "docker run ubuntu ls\nssh host 'docker run --device /dev/dav_manager img'"
    code, out, _ = lint(capsys, text)
    assert code == 0
    assert "note [run.text.unread] line 2: " in out
    assert out.endswith("errors: 0; not read: 1, see above\n")
    found = json.loads(lint(capsys, text, "--json")[1])
    jsonschema.validate(found, SCHEMA)
    assert [(one["name"], len(one["findings"])) for one in found["containers"]] == [("command 1", 0), ("text", 1)]


@pytest.mark.parametrize("options", ['"${ARGS[@]}"', "$MORE --rm", "$(cat options) --rm"])
def test_options_that_cannot_be_read_are_one_note(capsys: pytest.CaptureFixture[str], options: str) -> None:
    code, out, _ = lint(capsys, f"mapfile -t ARGS < file\ndocker run {options} ubuntu:22.04 ls")
    assert code == 0
    assert out.count("[run.text.unread]") == 1
    assert " in the command of line 2 is not read" in out
    assert not out.endswith("no errors\n")


def test_the_host_that_is_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Cases C03 and C07: chip and CPU are said, since no command tells them."""
    line = "docker run --platform linux/amd64 quickstart:8.5.0-910b-ubuntu22.04-py3.11"
    code, out, _ = lint(capsys, line, "--chip", "A3", "--arch", "aarch64")
    assert code == 3
    assert "is for chip 910b, and the host has a3" in out
    assert "--platform linux/amd64: the host is arm64" in out


def test_a_clean_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint(capsys, "docker run --rm ubuntu:22.04 ls") == (0, "no errors\n", "")
    jsonschema.validate(json.loads(lint(capsys, "docker run --rm ubuntu:22.04 ls", "--json")[1]), SCHEMA)


def test_a_command_without_a_card_is_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = lint(capsys, "docker run my-image:1")
    assert code == 0
    assert out.startswith("note [run.node.none] my-image:1: no card is mapped: this container sees no NPU\n")
    assert out.endswith("no errors\n")
    file = tmp_path / "compose.yaml"
    file.write_text("services: {data: {image: my-data:1}}\n")
    assert "run.node.none" not in lint(capsys, "--file", str(file))[1]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([], "no command is given"),
        (["docker", "run", "-it", "img"], "put quotes around it: python3 build.py lint-run 'docker run …'"),
        (["sudo", "docker", "run", "img"], "put quotes around it"),
        (["docker run a", "--chpi", "a3"], "unknown option --chpi"),
        (["docker ps"], "there is no `docker run` in it"),
        (["build.py"], "build.py: this is a file, not a command\n  → `python3 build.py lint-run --file build.py`"),
        (["docker run 'a"], "the command:1: a quote"),
        (["docker run a", "--file", "x"], "a command or --file, not both"),
        (["--file", "no-such-file"], "no-such-file: cannot be read"),
        (["--file", "/dev/zero"], "/dev/zero: is not a regular file"),
        (["--file", "/"], "/: is not a regular file"),
        (["docker run a", "--chip", "zx"], "CHIP: 'zx' is not known"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], words: list[str], what: str) -> None:
    code, _, err = lint(capsys, *words)
    assert code == 2
    assert what in err


def test_a_closed_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    code, _, err = lint(capsys, "-")
    assert code == 2
    assert "standard input is closed" in err


@pytest.mark.parametrize("text", ["services: []", "a: b", "- a"])
def test_a_file_without_services(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    code, _, err = lint(capsys, "--file", str(file))
    assert code == 2
    assert "there are no services in it" in err


@pytest.mark.parametrize("form", ["compose", "pod", "job -- bash", "raycluster"])
def test_the_files_that_run_prints_have_no_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    assert cli.main(("run", "verl-npu", "--arch", "arm64", "--print", "--format", *form.split()), ROOT) == 0
    file = tmp_path / "x.yaml"
    file.write_text(capsys.readouterr().out)
    assert lint(capsys, "--file", str(file))[0] == 0


@pytest.mark.parametrize("chip", ["910b", "a3"])
def test_what_run_prints_is_a_good_line(capsys: pytest.CaptureFixture[str], chip: str) -> None:
    assert cli.main(("run", "mindspeed-rl", "--arch", "arm64", "--chip", chip, "--print"), ROOT) == 0
    line = capsys.readouterr().out
    assert lint(capsys, line) == (0, "no errors\n", "")


def test_what_run_prints_for_a_stand_in_without_npus_is_a_good_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("run", "quickstart", "--print", "--npus", "none", "--base", "standin"), ROOT) == 0
    line = capsys.readouterr().out
    assert "-standin" in line
    assert lint(capsys, line) == (0, "no errors\n", "")


POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: main
      image: quay.io/ascend/vllm-ascend:v0.11.0
      resources: {limits: {LIMIT}}
      volumeMounts: [{name: src, mountPath: TARGET}]
  volumes: [{name: src, hostPath: {path: /home/me/tree}}]
"""


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu"])
def test_another_makers_cards_in_a_pod(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace("LIMIT", f'"{name}": 8').replace("TARGET", "/data"))
    code, out, _ = lint(capsys, "--file", str(file))
    assert code == 3
    assert f"resources.limits: {name}=8 asks for GPUs" in out
    assert "the Pod waits for one for ever" in out
    assert "resources.limits: the device plugin brings the nodes" in out


@pytest.mark.parametrize("resource", ["huawei.com/Ascend910", "huawei.com/npu"])
def test_fixes_for_a_manifest_name_no_option_of_docker(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, resource: str
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace("LIMIT", f'"{resource}": 8').replace("TARGET", "/data"))
    _, out, _ = lint(capsys, "--file", str(file))
    fixes = [line for line in out.splitlines() if line.strip().startswith("fix:")]
    assert fixes
    assert [line for line in fixes if " -v " in line or "--" in line] == []
    assert any(
        "hostPath volume of /usr/local/Ascend/driver/lib64 at /usr/local/Ascend/driver/lib64" in f for f in fixes
    )
    assert any("an emptyDir of medium Memory and sizeLimit 16g at /dev/shm" in f for f in fixes)


@pytest.mark.parametrize("tree", ["/vllm-workspace/vllm-ascend", "/vllm-workspace/vllm/vllm", "/sgl-workspace/sglang"])
def test_a_tree_of_the_makers_images_that_is_replaced(capsys: pytest.CaptureFixture[str], tree: str) -> None:
    """W13."""
    _, out, _ = lint(capsys, f"docker run -v /home/me/x:{tree} quay.io/ascend/vllm-ascend:v0.11.0 bash")
    assert "warning [run.mount.source]" in out
    assert "/".join(tree.split("/")[:3]) in out


@pytest.mark.parametrize("path", ["/vllm-workspace/data", "/sgl-workspace/models", "/data"])
def test_a_folder_beside_the_trees_is_well(capsys: pytest.CaptureFixture[str], path: str) -> None:
    _, out, _ = lint(capsys, f"docker run -v /home/me/x:{path} quay.io/ascend/vllm-ascend:v0.11.0 bash")
    assert "run.mount.source" not in out


@pytest.mark.parametrize(("name", "head"), [("start.sh", ""), ("start", "#!/bin/bash\n"), ("x.bash", "# mine\n")])
def test_a_script_is_a_file_too(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, head: str) -> None:
    file = tmp_path / name
    file.write_text(f"{head}docker run --gpus all quay.io/ascend/cann:8.5.0 bash\n")
    code, out, err = lint(capsys, "--file", str(file))
    assert (code, err) == (3, "")
    assert "--gpus all asks for GPUs" in out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "docker run -it \\ \n  --privileged quay.io/ascend/cann:8.5.0",
            "starts the next line as a command of its own",
        ),
        ("docker run --devcie /dev/davinci0 quay.io/ascend/cann:8.5.0", "docker refuses the whole command"),
        ("docker run \u2014privileged quay.io/ascend/cann:8.5.0", "the first word that is neither an option"),
    ],
)
def test_each_misread_word_has_its_own_reason(capsys: pytest.CaptureFixture[str], text: str, why: str) -> None:
    code, out, _ = lint(capsys, text)
    assert code == 3
    assert why in out
