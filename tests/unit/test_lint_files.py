"""Files that start containers: compose, Kubernetes manifests, workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cannery.catalog.documents import parse_yaml
from cannery.errors import UsageError
from cannery.lint.files import containers_of

if TYPE_CHECKING:
    from cannery.lint.container import Container


def read(*texts: str) -> tuple[Container, ...]:
    return containers_of([parse_yaml(text, f"{number}.yaml") for number, text in enumerate(texts, 1)])


def one(*texts: str) -> Container:
    (container,) = read(*texts)
    return container


def settings(container: Container) -> list[tuple[str, str | None]]:
    return [(setting.key, setting.value) for setting in container.settings]


@pytest.mark.parametrize(
    ("services", "what"),
    [
        ("{a: b}", "services.a is not a mapping"),
        ("{a: }", "services.a is not a mapping"),
    ],
)
def test_what_is_no_form_of_compose(services: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(f"services: {services}")
    assert str(caught.value).startswith(f"1.yaml: {what}")


def test_a_service_in_its_long_forms() -> None:
    found = one("""
services:
  a:
    image: i
    command: [bash, -c, x y]
    env_file: [{path: ./a.env}, b.env]
    device_cgroup_rules: ["c 236:* rwm"]
    devices: [/dev/davinci0, {source: /dev/davinci1, permissions: r}]
    volumes: [{type: bind, source: /a, target: /x}, {type: tmpfs, target: /t}, /y]
    environment: {A: 1, B: true, C: }
    deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}
""")
    assert found.command == ("bash", "-c", "x y")
    assert {name: variable.value for name, variable in found.env.items()} == {"A": "1", "B": "true", "C": None}
    assert [(mount.source, mount.target) for mount in found.mounts] == [("/a", "/x"), ("", "/t"), ("", "/y")]
    assert [device.source for device in found.devices] == ["/dev/davinci0", "/dev/davinci1"]
    rest = [
        pair for pair in settings(found) if pair[0] in {"env-file", "device-cgroup-rule", "gpus"} or "=" in str(pair)
    ]
    assert ("env-file", "./a.env") in rest
    assert ("device-cgroup-rule", "c 236:* rwm") in rest
    assert ("gpus", "all") in rest


def test_a_device_without_a_source_is_none_of_the_host() -> None:
    found = one("""
services:
  a: {image: i, devices: [{target: /dev/davinci0}], env_file: [{target: y}], volumes: [{target: /t}]}
""")
    assert (found.cards, [mount.target for mount in found.mounts]) == ((), ["/t"])
    assert ("env-file", "") in settings(found)


def test_anchors_and_merge_keys_are_read() -> None:
    text = (
        "x: &x {image: i, devices: [/dev/davinci0]}\nservices:\n  a: {<<: *x, shm_size: 1g}\n  b: {<<: *x, devices: []}"
    )
    first, second = read(text)
    assert (first.image, first.cards, first.value("shm-size"), second.cards) == ("i", (0,), "1g", ())


def test_a_service_in_two_files_is_for_compose_to_merge() -> None:
    first, second = read("services: {a: {image: i}}", "services: {b: {image: j}}")
    assert (first.image, second.image) == ("i", "j")
    with pytest.raises(UsageError) as caught:
        read("services: {a: {image: i}}", "services: {a: {gpus: all}}")
    assert "docker compose config" in (caught.value.hint or "")


def test_what_another_file_brings_is_a_word_that_is_not_read() -> None:
    text = "include: [b.yaml]\nservices:\n  a:\n    image: i\n    extends: {file: c.yaml, service: x}\n"
    assert one(text).opaque == ("services.a.extends", "include")
    with pytest.raises(UsageError) as caught:
        read("include: [b.yaml]")
    assert "docker compose config" in (caught.value.hint or "")


POD = """
hostNetwork: true
securityContext: {runAsUser: 1000, supplementalGroups: [1000]}
containers:
  - name: c
    image: a/b:1
    securityContext: {privileged: true}
    resources: {limits: {huawei.com/Ascend910: "8", cpu: 1}}
    env: [{name: A, value: x}, {name: B, valueFrom: {fieldRef: {fieldPath: y}}}]
    volumeMounts: [{name: driver, mountPath: /usr/local/Ascend/driver}, {name: shm, mountPath: /dev/shm},
                   {name: driver, mountPath: /z, subPath: lib64}]
volumes:
  - {name: driver, hostPath: {path: /usr/local/Ascend/driver}}
  - {name: shm, emptyDir: {medium: Memory}}
"""


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Pod", ["spec"]),
        ("Job", ["spec", "template", "spec"]),
        ("RayCluster", ["spec", "headGroupSpec", "template", "spec"]),
        ("CronJob", ["spec", "jobTemplate", "spec", "template", "spec"]),
    ],
)
def test_a_manifest_is_read_whatever_its_kind(kind: str, path: list[str]) -> None:
    lines = [f"{'  ' * depth}{key}:" for depth, key in enumerate(path)]
    lines += ["  " * len(path) + line for line in POD.strip().split("\n")]
    found = one("\n".join([f"apiVersion: v1\nkind: {kind}", *lines]))
    assert (found.image, found.where) == ("a/b:1", ".".join([*path, "containers.c"]))
    assert {key: found.value(key) for key in ("user", "group-add", "privileged", "resource")} == {
        "user": "1000", "group-add": "1000", "privileged": "true", "resource": "8",
    }  # fmt: skip
    assert sorted((mount.source, mount.target) for mount in found.mounts) == [
        ("", "/dev/shm"),
        ("/usr/local/Ascend/driver", "/usr/local/Ascend/driver"),
        ("/usr/local/Ascend/driver/lib64", "/z"),
    ]
    assert found.env["A"].value == "x"


def test_a_workflows_container_is_read_as_dockers_options() -> None:
    first, second, third = read("""
jobs:
  t:
    container:
      image: a/b:${{ matrix.version }}
      options: >-
        --privileged --device=/dev/davinci0
        -v /a:/b
      volumes: ["/c:/d"]
      env: {A: "${{ github.sha }}"}
    services: {db: {image: "redis:7", options: --shm-size 1g}}
  u: {container: "x:1"}
  v: {runs-on: y}
""")
    assert (first.where, first.image, first.cards) == ("jobs.t.container", "a/b:${matrix_version}", (0,))
    assert first.privileged
    assert [(mount.source, mount.target) for mount in first.mounts] == [("/a", "/b"), ("/c", "/d")]
    assert (second.where, second.value("shm-size")) == ("jobs.t.services.db", "1g")
    assert (third.where, third.image) == ("jobs.u.container", "x:1")


def test_options_of_a_workflow_that_cannot_be_read_are_an_error() -> None:
    with pytest.raises(UsageError) as caught:
        read('jobs: {t: {container: {image: i, options: "--device \'/dev"}}}')
    assert "jobs.t.container" in str(caught.value)


@pytest.mark.parametrize("text", ["a: b", "docker run img", "services: []", "services: {}", "- a"])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there are no services in it"):
        read(text)
