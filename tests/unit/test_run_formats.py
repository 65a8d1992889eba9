"""A container as compose file, Pod, Job and RayCluster: what they say, what they refuse, and that it means the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import factories
import pytest
import yaml
from hosts import FULL_A2, HCCN, MANAGERS, OTHERWISE, PARTIAL
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from schemas import compose_faults, kubernetes_faults, ray_faults, ray_job_faults

from cannery.catalog.catalog import ChipAccess, ImageUser
from cannery.errors import UsageError
from cannery.host.facts import HostNpus, full_model
from cannery.lock.lock import LockedPackage
from cannery.run.container import Container, RunRequest, docker_arguments, make_container, parse_run_as
from cannery.run.kubernetes import dns_name, job, pod, size
from cannery.run.print import compose_file, printed, printed_notes
from cannery.run.ray import Ray, ray_cluster, ray_job, ray_of
from cannery.sandbox.box import Mount
from cannery.util.yaml_output import yaml_output
from cannery.vocab import Arch, RunFormat

if TYPE_CHECKING:
    from types import TracebackType

RESOURCE = "huawei.com/Ascend910"
ACCESS = ChipAccess(
    names="A2",
    cards=8,
    managers=MANAGERS,
    mounts=("/usr/local/dcmi", "/usr/local/Ascend/driver/version.info"),
    network=(HCCN,),
    ranktable="1.0",
    resource=RESOURCE,
)
RAY = Ray("2.46.0", has_dashboard=True)
USER = ImageUser(name="trainer", uid=2000, gid=3000)
AS_USER = {"runAsNonRoot": True, "runAsUser": 2000, "runAsGroup": 3000}
TREE = Mount("/home/me/hf", "/root/.cache/huggingface")


def made(**asked: Any) -> Container:  # noqa: ANN401 - of the request
    host = asked.pop("host", FULL_A2)
    return make_container(RunRequest("stack:tag", "16g", **asked), ACCESS, host)


class Answers:
    """A server on loopback, and one address a text that it answers with."""

    def __init__(self, texts: list[str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(texts[int(self.path[1:])].encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addresses = [f"http://127.0.0.1:{self.server.server_port}/{number}" for number in range(len(texts))]

    def __enter__(self) -> list[str]:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.addresses

    def __exit__(self, _type: type[BaseException] | None, _value: object, _where: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()


def service(container: Container) -> dict[str, Any]:
    value = compose_file(container, "stack")
    assert compose_faults(value) == []
    return dict(value["services"]["stack"])


def pod_of(container: Container, name: str = "stack") -> dict[str, Any]:
    value = pod(container, name, RESOURCE, Arch.ARM64)
    assert kubernetes_faults(value) == []
    return dict(value["spec"])


def inner(spec: dict[str, Any]) -> dict[str, Any]:
    (found,) = spec["containers"]
    return dict(found)


# Compose


def test_a_service_has_what_the_command_has() -> None:
    value = service(made(cards=(1,), name="mine", terminal=True, network="host", command=("python", "train.py")))
    assert value["devices"] == [f"{node}:{node}" for node in ("/dev/davinci1", *MANAGERS)]
    assert (value["shm_size"], value["group_add"], value["network_mode"]) == ("16g", ["1000"], "host")
    assert (value["init"], value["tty"], value["stdin_open"], value["container_name"]) == (True, True, True, "mine")
    assert value["environment"] == {"ASCEND_RT_VISIBLE_DEVICES": "0"}
    assert value["command"] == ["python", "train.py"]
    assert "privileged" not in value


def test_a_missing_folder_is_an_error_of_compose_and_no_empty_folder() -> None:
    value = service(made(caches=(TREE,), volumes=("/data:/data:ro",)))
    *mounts, data = value["volumes"]
    assert data == "/data:/data:ro"
    assert all(mount["bind"] == {"create_host_path": False} for mount in mounts)
    assert mounts[-1] == {
        "type": "bind", "source": TREE.source, "target": TREE.target, "bind": {"create_host_path": False}
    }  # fmt: skip
    assert mounts[0]["read_only"] is True


def test_the_runtime_replaces_the_devices() -> None:
    value = service(made(runtime="ascend", host=PARTIAL))
    assert value["runtime"] == "ascend"
    assert value["environment"] == {"ASCEND_VISIBLE_DEVICES": "3,4"}
    assert not {"devices", "volumes"} & set(value)


def test_a_container_without_npus_has_no_empty_lists() -> None:
    assert service(made(npu=False)) == {"image": "stack:tag", "init": True, "shm_size": "16g"}


def test_dollars_are_no_variables_of_compose() -> None:
    value = service(made(npu=False, env=("A=$HOME", "B"), command=("sh", "-c", "echo $$ $A")))
    assert value["environment"] == {"A": "$$HOME", "B": None}
    assert value["command"][-1] == "echo $$$$ $$A"


# Kubernetes


def test_a_pod_asks_the_device_plugin_for_as_many_cards() -> None:
    value = inner(pod_of(made(cards=(0, 2, 5))))
    assert value["resources"] == {"requests": {RESOURCE: 3}, "limits": {RESOURCE: 3}}
    assert "env" not in value, "the plugin chooses, and says which"
    assert "/dev/davinci" not in json.dumps(value)
    assert inner(pod_of(made()))["resources"]["limits"] == {RESOURCE: 8}
    assert "resources" not in inner(pod_of(made(npu=False)))


def test_driver_files_come_from_the_node_and_are_not_made_there() -> None:
    spec = pod_of(made())
    types = {
        volume["hostPath"]["path"]: volume["hostPath"]["type"] for volume in spec["volumes"] if "hostPath" in volume
    }
    assert types == {
        "/usr/local/dcmi": "Directory",
        "/usr/local/Ascend/driver/version.info": "File",
        "/usr/local/bin/npu-smi": "File",
    }
    names = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in inner(spec)["volumeMounts"]} == names
    assert all(m["readOnly"] for m in inner(spec)["volumeMounts"] if m["name"].startswith("driver"))


def test_a_cluster_with_the_ascend_runtime_mounts_the_driver_itself() -> None:
    assert [volume["name"] for volume in pod_of(made(runtime="ascend"))["volumes"]] == ["shm"]


def test_shm_group_arch_and_name() -> None:
    spec = pod_of(made(), "verl-qwen3.5")
    assert spec["volumes"][-1] == {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
    assert inner(spec)["volumeMounts"][-1] == {"name": "shm", "mountPath": "/dev/shm"}
    assert spec["securityContext"] == {"supplementalGroups": [1000]}
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert (spec["restartPolicy"], inner(spec)["name"]) == ("Never", "verl-qwen3-5")
    assert "hostNetwork" not in spec
    assert "privileged" not in json.dumps(spec)


def test_the_images_entrypoint_stays() -> None:
    value = inner(pod_of(made(command=("python", "train.py"))))
    assert value["args"] == ["python", "train.py"]
    assert not {"command", "stdin", "tty"} & set(value)
    waiting = inner(pod_of(made()))
    assert (waiting["stdin"], waiting["tty"]) == (True, True)


def test_on_the_nodes_network_the_interface_is_named() -> None:
    spec = pod_of(made(network="host", interface="bond0", env=("A=1",)))
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    env = {entry["name"]: entry for entry in inner(spec)["env"]}
    assert {name: env[name]["value"] for name in ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "A")} == {
        "GLOO_SOCKET_IFNAME": "bond0",
        "HCCL_SOCKET_IFNAME": "bond0",
        "A": "1",
    }
    assert HCCN in json.dumps(spec["volumes"])


def test_folders_of_each_node() -> None:
    spec = pod_of(made(npu=False, volumes=("/data:/data:ro", "/out:/there")))
    assert spec["volumes"][:2] == [
        {"name": "volume-0", "hostPath": {"path": "/data"}},
        {"name": "volume-1", "hostPath": {"path": "/out"}},
    ]
    assert inner(spec)["volumeMounts"][:2] == [
        {"name": "volume-0", "mountPath": "/data", "readOnly": True},
        {"name": "volume-1", "mountPath": "/there"},
    ]


@pytest.mark.parametrize(
    ("asked", "what", "hint"),
    [
        ({"network": "none"}, "--network none", "leave it out"),
        ({"env": ("TOKEN",)}, "-e TOKEN", "TOKEN=VALUE"),
        ({"volumes": ("data:/data",)}, "-v data:/data", "claim"),
        ({"volumes": ("/a:/dev/shm/",)}, "-v /a:/dev/shm/: a pod has its shared memory of 16g there", "leave it out"),
        ({"volumes": ("/data",)}, "-v /data", "SRC:DST"),
    ],
)
@pytest.mark.parametrize("make", [pod, job])
def test_what_a_cluster_cannot_have_of_this_host(make: Any, asked: dict[str, Any], what: str, hint: str) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=re.escape(what)) as caught:
        make(made(command=("true",), **asked), "stack", RESOURCE, Arch.AMD64)
    assert hint in caught.value.hint


def test_a_chip_that_no_plugin_offers() -> None:
    with pytest.raises(UsageError, match="no device plugin is known"):
        pod(made(), "stack", None, Arch.AMD64)


def test_a_job_runs_its_command_once() -> None:
    value = job(made(command=("python", "train.py")), "stack", RESOURCE, Arch.AMD64)
    assert kubernetes_faults(value) == []
    assert value["spec"]["backoffLimit"] == 0
    assert value["spec"]["template"]["spec"] == pod(
        made(command=("python", "train.py")), "stack", RESOURCE, Arch.AMD64
    )["spec"]  # fmt: skip
    with pytest.raises(UsageError, match="a Job needs a command") as caught:
        job(made(), "stack", RESOURCE, Arch.AMD64)
    assert "--" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "found"), [("16g", "16Gi"), ("512M", "512Mi"), ("64k", "64Ki"), ("1048576", "1048576")]
)
def test_sizes(text: str, found: str) -> None:
    assert size(text) == found


@pytest.mark.parametrize(
    ("text", "found"), [("verl-qwen3.5", "verl-qwen3-5"), ("My_Run", "my-run"), ("x" * 80, "x" * 63), (".a.", "a")]
)
def test_names(text: str, found: str) -> None:
    assert dns_name(text) == found


def test_a_name_of_nothing() -> None:
    with pytest.raises(UsageError, match="--name: '__'"):
        dns_name("__")


def kubernetes_reads(text: str, known: dict[str, str]) -> str:
    """What a container gets of an argument: the rules of Kubernetes' documentation on dependent variables."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0]) if match[1] is not None else match[0]

    return re.sub(r"\$\$|\$\(([^)]*)\)|\$", one, text)


@given(st.text("$()aA \n", max_size=12))
def test_dollars_are_no_variables_of_kubernetes(text: str) -> None:
    value = inner(pod(made(npu=False, command=(text,), env=(f"A={text}",)), "stack", RESOURCE, Arch.AMD64)["spec"])
    assert kubernetes_reads(value["args"][0], {"a": "?", "A": "?", "": "?"}) == text
    assert kubernetes_reads(value["env"][0]["value"], {"a": "?", "A": "?", "": "?"}) == text


@pytest.mark.parametrize(
    ("user", "host", "security"),
    [
        (None, FULL_A2, {"supplementalGroups": [1000]}),
        (None, OTHERWISE, None),
        (USER, FULL_A2, {**AS_USER, "supplementalGroups": [1000]}),
        (USER, OTHERWISE, {**AS_USER, "supplementalGroups": [0]}),
    ],
)
def test_a_pod_names_its_user(user: ImageUser | None, host: HostNpus, security: dict[str, Any] | None) -> None:
    container = made(user=user, host=host)
    assert pod_of(container).get("securityContext") == security
    group = None if security is None else [str(number) for number in security["supplementalGroups"]]
    assert service(container).get("group_add") == group
    words = docker_arguments(container)
    assert [b for a, b in pairwise(words) if a == "--group-add"] == (group or [])
    assert pod_of(made(user=user, npu=False)).get("securityContext") == (AS_USER if user else None)


@pytest.mark.parametrize(
    ("text", "user", "numbers", "non_root"),
    [
        ("4321", None, (4321, 0), True),
        ("4321:100", USER, (4321, 100), True),
        ("2000", USER, (2000, 3000), True),
        ("0", USER, (0, 0), False),
    ],
)
def test_every_form_names_another_user(
    text: str, user: ImageUser | None, numbers: tuple[int, int], *, non_root: bool
) -> None:
    run_as = parse_run_as(text, user)
    assert (run_as.uid, run_as.gid) == numbers
    container = made(user=user, run_as=run_as, host=OTHERWISE)
    security = pod_of(container)["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == numbers
    assert security.get("runAsNonRoot", False) is non_root
    assert security.get("supplementalGroups") == ([0] if non_root else None), "root's nodes, and root opens its own"
    assert service(container)["user"] == text
    assert ("--user", text) in pairwise(docker_arguments(container))


@pytest.mark.parametrize("text", ["", "alice", "1:", ":1", "1:b", "-1", str(2**32 - 1), "1:2:3", "٣"])
def test_no_user_by_number(text: str) -> None:
    with pytest.raises(UsageError, match="is not a numeric user"):
        parse_run_as(text, None)


@pytest.mark.parametrize(
    ("text", "user", "cards", "notes"),
    [
        ("4321", USER, 2, ["uid 4321 has no name in the image"]),
        ("4321", USER, 1, []),
        ("4321:4321", USER, 1, [f"4321:4321 cannot write {USER.home}: HOME is /tmp"]),
        ("2000", USER, 8, []),
        ("65534", USER, 8, []),
        ("0", None, 8, []),
        ("65534", None, 8, ["the image runs as root: uid 65534 has no home"]),
        ("4321", None, 8, ["the image runs as root: uid 4321 has no home", "uid 4321 has no name in the image"]),
    ],
)
def test_what_another_user_is_missing(text: str, user: ImageUser | None, cards: int, notes: list[str]) -> None:
    container = made(user=user, run_as=parse_run_as(text, user), cards=tuple(range(cards)))
    assert len(container.notes) == len(notes)
    assert all(said.startswith(note) for said, note in zip(container.notes, notes, strict=True))


@pytest.mark.parametrize(
    ("text", "user", "home"),
    [
        ("4321", None, "/tmp"),
        ("65534", None, "/tmp"),
        ("0", None, None),
        ("0:4321", USER, None),
        ("4321", USER, None),  # in group 0, whose the home is too
        ("4321:4321", USER, "/tmp"),
        ("2000:4321", USER, None),
    ],
)
def test_who_cannot_write_at_the_images_home_gets_another(text: str, user: ImageUser | None, home: str | None) -> None:
    run_as = parse_run_as(text, user)
    for npu in (True, False):
        container = made(user=user, run_as=run_as, npu=npu)
        assert dict(container.env).get("HOME") == home
        assert service(container).get("environment", {}).get("HOME") == home
    own = made(user=user, run_as=run_as, env=("HOME=/data",))
    assert [value for name, value in own.env if name == "HOME"] == ["/data"], "what -e says wins, and is said once"


# RayCluster


def cluster(ray: Ray = RAY, **asked: Any) -> dict[str, Any]:  # noqa: ANN401 - of the request
    value = ray_cluster(made(**asked), "stack", RESOURCE, Arch.ARM64, ray)
    assert ray_faults(value) == []
    return value


def test_a_cluster_has_its_head_on_the_first_node_and_the_rest_as_workers() -> None:
    spec = cluster(nodes=4)["spec"]
    (workers,) = spec["workerGroupSpecs"]
    assert [workers[name] for name in ("replicas", "minReplicas", "maxReplicas")] == [3, 3, 3]
    for group in (spec["headGroupSpec"], workers):
        value = inner(group["template"]["spec"])
        assert value["resources"]["limits"] == {RESOURCE: 8}
        assert json.loads(shlex.split(group["rayStartParams"]["resources"])[0]) == {"NPU": 8}, "through a shell"
        assert not {"stdin", "tty", "args"} & set(value)
        assert "restartPolicy" not in group["template"]["spec"]
    assert spec["rayVersion"] == "2.46.0"
    assert HCCN in json.dumps(workers), "nodes that are several reach each other"


def test_one_node_is_a_head_alone() -> None:
    assert "workerGroupSpecs" not in cluster()["spec"]
    assert "resources" not in cluster(npu=False)["spec"]["headGroupSpec"]["rayStartParams"]


def test_the_head_has_ports_and_every_pod_has_probes() -> None:
    spec = cluster(nodes=2)["spec"]
    head = inner(spec["headGroupSpec"]["template"]["spec"])
    worker = inner(spec["workerGroupSpecs"][0]["template"]["spec"])
    assert {port["name"]: port["containerPort"] for port in head["ports"]} == {
        "gcs-server": 6379, "dashboard": 8265, "client": 10001
    }  # fmt: skip
    for value, addresses in ((head, 2), (worker, 1)):
        for probe in ("livenessProbe", "readinessProbe"):
            command = value[probe]["exec"]["command"]
            assert command[:2] == ["python", "-c"]
            compile(command[2], "probe", "exec")
            assert len(command[3:]) == addresses


@pytest.mark.parametrize("answers", [["success"], ["success", "no raylet"], ["nothing"]])
def test_a_probe_asks_the_pod_itself_whatever_proxy_is_set(answers: list[str]) -> None:
    head = inner(cluster()["spec"]["headGroupSpec"]["template"]["spec"])
    code = head["livenessProbe"]["exec"]["command"][2]
    with Answers(answers) as addresses:
        env = {**os.environ, "http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
        done = subprocess.run([sys.executable, "-c", code, *addresses], env=env, timeout=20, check=False)
    assert (done.returncode == 0) is (set(answers) == {"success"})


def test_a_ray_without_its_dashboard_is_asked_by_its_raylets_port() -> None:
    """No agent answers on such a node, and KubeRay would restart its pod for ever."""
    spec = cluster(Ray("2.42.1", has_dashboard=False), nodes=2)["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        port = int(group["rayStartParams"]["node-manager-port"])
        value = inner(group["template"]["spec"])
        assert value["livenessProbe"]["tcpSocket"] == value["readinessProbe"]["tcpSocket"] == {"port": port}
        assert "exec" not in value["livenessProbe"]
    assert "node-manager-port" not in cluster()["spec"]["headGroupSpec"]["rayStartParams"]


def test_which_ray_a_lock_has() -> None:
    def packages(*names: str) -> list[LockedPackage]:
        return [LockedPackage(name, "2.42.1", "", "", 0, "default", ()) for name in names]

    assert ray_of(packages("torch")) is None
    assert ray_of(packages("ray", "aiohttp-cors", "opencensus")) == Ray("2.42.1", has_dashboard=True)
    assert ray_of(packages("ray", "opencensus")) == Ray("2.42.1", has_dashboard=False)
    plain, whole = (Ray("2.42.1", has_dashboard=has) for has in (False, True))
    assert "kubectl exec" in printed_notes(RunFormat.RAYCLUSTER, made(), ACCESS, FULL_A2, plain)[-1]
    assert "kubectl exec" not in str(printed_notes(RunFormat.RAYCLUSTER, made(), ACCESS, FULL_A2, whole))
    assert "kubectl exec" not in str(printed_notes(RunFormat.POD, made(), ACCESS, FULL_A2, plain))


def test_a_card_that_no_host_of_the_chip_has_is_named() -> None:
    request = RunRequest("image", "16g", cards=(7, 8, 99))
    container = make_container(request, ACCESS, full_model(ACCESS, request.cards))
    notes = printed_notes(RunFormat.DOCKER, container, ACCESS, FULL_A2)
    assert "NPUS: a host of this chip has cards 0 to 7, and no card 8,99" in notes
    whole = make_container(RunRequest("image", "16g", cards=(7,)), ACCESS, full_model(ACCESS, (7,)))
    assert "NPUS" not in str(printed_notes(RunFormat.DOCKER, whole, ACCESS, FULL_A2))


def test_the_name_is_one_that_kuberay_takes() -> None:
    value = ray_cluster(made(), "Long_" * 20, RESOURCE, Arch.ARM64, RAY)
    assert value["metadata"]["name"] == ("long-" * 20)[:53].rstrip("-")
    assert ray_faults(value) == []
    with pytest.raises(UsageError, match="begins with a letter") as caught:
        ray_cluster(made(), "7b", RESOURCE, Arch.ARM64, RAY)
    assert "ray-7b" in caught.value.hint


def test_what_ray_cannot() -> None:
    with pytest.raises(UsageError, match="the image has no Ray"):
        ray_cluster(made(), "stack", RESOURCE, Arch.AMD64, None)
    with pytest.raises(UsageError, match="takes no command") as caught:
        ray_cluster(made(command=("python",)), "stack", RESOURCE, Arch.AMD64, RAY)
    assert "ray job submit" in caught.value.hint


# The schemas do find what is wrong


def test_a_misspelt_field_is_found_everywhere() -> None:
    value = compose_file(made(), "stack")
    value["services"]["stack"]["shm-size"] = "16g"
    assert "'shm-size'" in compose_faults(value)[0]
    wrong = pod(made(), "stack", RESOURCE, Arch.AMD64)
    wrong["spec"]["containers"][0]["volumemounts"] = []
    assert all("'volumemounts'" in fault for fault in kubernetes_faults(wrong))
    assert len(kubernetes_faults(wrong)) == 2
    inside, around = cluster(nodes=2), cluster(nodes=2)
    inside["spec"]["workerGroupSpecs"][0]["template"]["spec"]["hostNetwork"] = "yes"
    around["spec"]["workerGroupSpecs"][0]["replica"] = 1
    assert "'yes'" in ray_faults(inside)[0]
    assert "'replica'" in ray_faults(around)[0]


# Text


@pytest.mark.parametrize("form", RunFormat)
def test_what_is_printed_is_the_container(form: RunFormat) -> None:
    plan = factories.plan()
    if form is RunFormat.RAYJOB:
        pytest.skip("the plan's Ray has no dashboard: test_a_ray_job_is_a_cluster_and_a_command")
    asked = {"command": ("true",)} if form is RunFormat.JOB else {}
    text = printed(form, made(**asked), ACCESS, plan)
    assert text.endswith("\n")
    if form is RunFormat.DOCKER:
        assert text.startswith("docker run")
    else:
        kinds = {RunFormat.POD: "Pod", RunFormat.JOB: "Job", RunFormat.RAYCLUSTER: "RayCluster"}
        assert yaml.safe_load(text).get("kind") == kinds.get(form)
    if form is RunFormat.RAYCLUSTER:
        assert yaml.safe_load(text)["spec"]["rayVersion"] == "2.50.0"


def test_notes_of_this_host_are_for_what_runs_on_one_like_it() -> None:
    container = made(cards=(3, 4, 5), network="host", interface="eth0")
    local = printed_notes(RunFormat.COMPOSE, container, ACCESS, PARTIAL)
    assert local == (f"missing on this host: card 5, {HCCN}",)
    remote = printed_notes(RunFormat.POD, container, ACCESS, PARTIAL)
    assert remote[0] == "the device plugin chooses the cards: 3 are asked for, numbers do not count"
    assert "names no registry" in remote[1]


NOWHERE = HostNpus(frozenset(), frozenset())
GUESS = (
    "group 1000 is the one that the driver's installer usually makes (HwHiAiUser); "
    "run `stat -c %g /dev/davinci_manager` on the NPU host to check"
)


@pytest.mark.parametrize("form", [RunFormat.DOCKER, RunFormat.COMPOSE, RunFormat.POD])
def test_a_group_is_a_guess_only_where_no_node_is_seen(form: RunFormat) -> None:
    request = RunRequest("host/a/image", "16g")
    assert GUESS in printed_notes(form, make_container(request, ACCESS, full_model(ACCESS, None)), ACCESS, NOWHERE)
    assert GUESS not in printed_notes(form, make_container(request, ACCESS, FULL_A2), ACCESS, FULL_A2)
    plain = make_container(RunRequest("host/a/image", "16g", npu=False), ACCESS, NOWHERE)
    assert GUESS not in printed_notes(form, plain, ACCESS, NOWHERE)


scalars = st.one_of(
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=12),
    st.sampled_from(
        ["1e-6", "0x1F", "0o7", "1_000", "12:30:45", "2026-01-02", "y", "N", "on", "~", "null", "=", ".5", "a: b"]
    ),
    st.integers(),
    st.booleans(),
)


@given(st.dictionaries(scalars.filter(lambda v: isinstance(v, str)), st.one_of(scalars, st.lists(scalars)), max_size=4))
def test_readers_of_yaml_1_1_and_1_2_read_the_same(value: dict[str, Any]) -> None:
    text = yaml_output(value)
    assert yaml.safe_load(text) == value
    assert YAML(typ="safe", pure=True).load(StringIO(text)) == value


@pytest.mark.parametrize("word", ["1e-6", "1E5", "y", "N", "0x1F", "012", "1_000", "12:30", "--lr"])
def test_words_that_some_reader_takes_for_something_else_are_quoted(word: str) -> None:
    assert yaml_output([word]) == f"- '{word}'\n"


@pytest.mark.parametrize("word", ["python", "/opt/venv/bin/python", "huawei.com/Ascend910", "stack:tag-1"])
def test_plain_words_are_not(word: str) -> None:
    assert yaml_output([word]) == f"- {word}\n"


def test_a_ray_job_is_a_cluster_and_a_command() -> None:
    container = made(command=("python", "-m", "train", "a b"), nodes=3)
    job = ray_job(container, "Run", ACCESS.resource, Arch.ARM64, RAY)
    assert ray_job_faults(job) == []
    assert job["spec"]["entrypoint"] == "python -m train 'a b'"
    idle = replace(container, request=replace(container.request, command=()))
    assert job["spec"]["rayClusterSpec"] == ray_cluster(idle, "run", ACCESS.resource, Arch.ARM64, RAY)["spec"]
    long = ray_job(container, "n" * 60, ACCESS.resource, Arch.ARM64, RAY)["metadata"]["name"]
    assert len(long) == 47, "KubeRay adds six characters for the cluster, whose name has 53 at most"


@pytest.mark.parametrize(
    ("command", "ray", "what"),
    [
        ((), RAY, "a RayJob needs a command"),
        (("true",), replace(RAY, has_dashboard=False), "dashboard"),
        (("true",), None, "the image has no Ray"),
    ],
)
def test_what_no_ray_job_can_be(command: tuple[str, ...], ray: Ray | None, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        ray_job(made(command=command), "run", ACCESS.resource, Arch.ARM64, ray)
