"""What a user meets in a running container of quickstart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.engine_fixtures import NODES, Cannery, Image

if TYPE_CHECKING:
    from testinfra.host import Host

pytestmark = pytest.mark.engine

PYTHON = "/opt/venv/bin/python"
VERIFY = f"{PYTHON} /opt/cannery/verify.py"
# Set by shells and docker themselves.
OF_THE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD", "HOME", "HOSTNAME", "TERM", "SHELL", "USER", "LOGNAME", "MAIL"}


def environment(text: str) -> dict[str, str]:
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: value for name, value in pairs.items() if name not in OF_THE_SHELL}


def test_verify_passes(host: Host) -> None:
    done = host.run(f"{VERIFY} --json")
    report = json.loads(done.stdout)
    assert done.rc == 0, [check for check in report["checks"] if check["status"] == "failed"]
    assert report["result"] == "passed"


def test_train_runs_as_far_as_a_cpu_goes(host: Host) -> None:
    """What needs no NPU is done with the real verl; the step is skipped by its reason, and nothing is left behind."""
    done = host.run(f"{VERIFY} --json --level train")
    report = json.loads(done.stdout)
    found = {check["id"]: (check["status"], check["message"]) for check in report["checks"]}
    assert {name: status for name, (status, _) in found.items()} == {
        "train.model": "passed",
        "train.data": "passed",
        "train.config": "passed",
        "train.step": "skipped",
    }, report
    assert (done.rc, report["result"]) == (0, "passed")
    assert "one step on the CPU: loss " in found["train.model"][1]
    assert found["train.data"][1].startswith("16 rows in train.parquet, read back by verl's RLHFDataset")
    assert found["train.config"][1].startswith("verl.trainer.main_ppo takes ")
    assert found["train.step"][1].startswith("stand-in")
    assert not host.check_output("find /tmp /root -mindepth 1 -maxdepth 1 '(' -name 'train-*' -o -name '.[ac]*' ')'")
    assert not host.check_output("find /opt/cannery -name __pycache__")
    assert host.run(f"{VERIFY} --level train --only train.step --require-npu").rc == 3


def test_same_environment_however_a_process_starts(host: Host, cannery: Cannery, image: Image) -> None:
    views = {
        "run": cannery.docker("run", "--rm", image.reference, "env").stdout,
        "entrypoint": cannery.docker("run", "--rm", "--entrypoint", "env", image.reference).stdout,
        "exec": host.run("env").stdout,
        "sh -c": host.run("sh -c env").stdout,
        "bash -lc": host.run("bash -lc env").stdout,
        "bash -lc, cleared": host.run("env -i HOME=/root bash -lc env").stdout,
    }
    wanted = environment(views["run"])
    assert wanted["LD_PRELOAD"] == "/usr/local/lib/libjemalloc.so.2"
    assert wanted["PATH"].startswith("/opt/venv/bin:")
    for how, text in views.items():
        assert environment(text) == wanted, how


def test_no_empty_segment_in_any_path(host: Host) -> None:
    for name, value in environment(host.run("env").stdout).items():
        if name.endswith("PATH"):
            assert all(value.split(":")), f"{name}={value}"


def test_jemalloc_is_mapped_in_python(host: Host) -> None:
    maps = host.check_output(f"{PYTHON} -c \"print(open('/proc/self/maps').read())\"")
    assert "libjemalloc.so.2" in maps


@pytest.mark.parametrize("module", ["torch", "torch_npu", "ray", "transformers", "tensordict", "numpy", "verl"])
def test_import(host: Host, module: str) -> None:
    done = host.run(f"{PYTHON} -c 'import {module}; print({module}.__file__)'")
    assert done.rc == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("/opt/venv/lib/python3.11/site-packages/")


def test_other_users_can_import_everything(cannery: Cannery, image: Image) -> None:
    code = "import torch, torch_npu, ray, transformers, tensordict, numpy, verl; print('fine')"
    done = cannery.docker(
        "run", "--rm", "--user", "65534:65534", "--read-only", "--tmpfs", "/tmp", "--env", "HOME=/tmp",
        image.reference, PYTHON, "-c", code,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "fine"


def test_sees_exactly_the_device_nodes_that_were_given(host: Host) -> None:
    found = host.check_output("ls -1 /dev").split()
    npu = {f"/dev/{name}" for name in found if name.startswith(("davinci", "devmm", "hisi"))}
    assert npu == set(NODES)


def test_shared_memory_is_the_profile_s(host: Host) -> None:
    assert int(host.check_output("df --output=size -B1 /dev/shm | tail -1")) == 16 * 2**30


def test_nothing_of_the_build_is_left(host: Host, cannery: Cannery, image: Image) -> None:
    for path in ("/out", "/opt/uv", "/run/cannery", "/run/secrets", "/root/.cache", "/etc/pip.conf", "/root/.config"):
        assert not host.file(path).exists, path
    assert host.check_output("ls /var/lib/apt/lists /var/cache/apt/archives | grep -c deb || true").strip() == "0"
    assert not any(n.upper().startswith(("PIP_", "UV_")) for n in environment(host.run("env").stdout))
    written = cannery.docker("history", "--no-trunc", image.reference).stdout
    written += cannery.docker("image", "inspect", image.reference).stdout
    for word in ("http_proxy", "https_proxy", "CANNERY_", "ca-certificates.crt"):
        assert word not in written, word


def test_the_host_s_mirror_is_not_in_the_image(host: Host) -> None:
    done = host.run("grep -rhE '^(deb|URIs)' /etc/apt")
    assert done.stdout == ""


def test_labels_say_what_it_is(cannery: Cannery, image: Image) -> None:
    config = json.loads(cannery.docker("image", "inspect", image.reference).stdout)[0]["Config"]
    labels = config["Labels"]
    assert labels["org.cannery.profile"] == "quickstart"
    assert labels["org.cannery.base.kind"] == "standin"
    assert "stand-in" in labels["org.cannery.warning"]
    assert image.reference.endswith(f"-{labels['org.cannery.plan']}-standin")
    assert config["Entrypoint"] in (None, [])


def test_manifest_tells_every_installed_distribution(host: Host) -> None:
    manifest = json.loads(host.file("/opt/cannery/manifest.json").content_string)
    listed = {(w["name"], w["version"]) for w in manifest["wheels"]}
    installed = json.loads(host.check_output(f"{PYTHON} -m pip list --format json --disable-pip-version-check"))
    found = {(d["name"].lower().replace("_", "-").replace(".", "-"), d["version"]) for d in installed}
    assert found == listed
