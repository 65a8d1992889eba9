"""What a compose file has to look like, and services that take over another one."""

from __future__ import annotations

import pytest

from cannery.errors import UsageError
from cannery.lint.compose import containers_of
from cannery.lint.compose_tree import OVERRIDE, RESET, compose_file


@pytest.mark.parametrize(
    ("services", "what"),
    [
        ({"a": "b"}, "services.a is no mapping"),
        ({"a": None}, "services.a is no mapping"),
        ({"a": {"devices": 5}}, "services.a.devices has to be a list"),
        ({"a": {"volumes": {"a": "b"}}}, "services.a.volumes has to be a list"),
        ({"a": {"environment": "A=1"}}, "services.a.environment has to be a list or a mapping"),
        ({"a": {"tmpfs": 1}}, "services.a.tmpfs has to be a list or a text"),
        ({"a": {"privileged": "maybe"}}, "services.a.privileged: 'maybe' is no boolean"),
        ({"a": {"privileged": [1]}}, "services.a.privileged: [1] is no boolean"),
        ({"a": {"extends": "b"}}, "services.a.extends: there is no service b"),
        ({"a": {"extends": "b"}, "b": {"extends": {"service": "a"}}}, "services.b.extends: a extends b itself"),
        ({"a": {"extends": "a"}}, "services.a.extends: a extends a itself"),
        ({"a": {"volumes": ["/a:/b", ["/c:/d"]]}}, "services.a.volumes[1] is no text and no mapping"),
        ({"a": {"devices": [None]}}, "services.a.devices[0] is no text and no mapping"),
    ],
)
def test_what_is_no_form_of_compose(services: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        containers_of([compose_file({"services": services}, "compose.yaml")])
    assert str(caught.value).startswith(f"compose.yaml: {what}")


def test_a_chain_of_services_has_an_end() -> None:
    services = {"s0": {"image": "i"}, **{f"s{n}": {"extends": f"s{n - 1}"} for n in range(1, 2000)}}
    with pytest.raises(UsageError, match="more than 32 services extend one another"):
        containers_of([compose_file({"services": services}, "x")])
    few = dict(list(services.items())[:33])
    assert {one.image for one in containers_of([compose_file({"services": few}, "x")])} == {"i"}


@pytest.mark.parametrize(("text", "on"), [("yes", True), ("On", True), ("no", False), ("true", True)])
def test_a_text_is_a_boolean_as_compose_reads_it(text: str, on: bool) -> None:
    (container,) = containers_of([compose_file({"services": {"a": {"image": "i", "privileged": text}}}, "x")])
    assert (container.switch("privileged") is not None) is on


def test_a_service_takes_over_what_it_extends() -> None:
    base = {
        "image": "i",
        "shm_size": "16g",
        "devices": ["/dev/davinci0"],
        "volumes": ["/a:/x:ro", "/b:/y"],
        "environment": {"A": 1, "B": True},
    }
    own = {
        "extends": {"service": "base"},
        "shm_size": "32g",
        "devices": ["/dev/davinci1"],
        "volumes": [{"type": "bind", "source": "/c", "target": "/x"}],
        "environment": ["A=2"],
    }
    found = containers_of([compose_file({"services": {"own": own, "base": base}}, "x")])[0]
    assert (found.image, found.value("shm-size"), found.cards) == ("i", "32g", (0, 1))
    assert sorted((mount.source, mount.target) for mount in found.mounts) == [("/b", "/y"), ("/c", "/x")]
    assert {name: variable.value for name, variable in found.env.items()} == {"A": "2", "B": "true"}
    assert found.opaque == ()


def test_what_another_file_brings_may_be_any_setting() -> None:
    service = {"image": "i", "extends": {"file": "other.yaml", "service": "b"}}
    (found,) = containers_of([compose_file({"services": {"a": service}}, "x")])
    assert found.opaque == ("services.a.extends",)


def test_what_a_service_says_in_a_long_form_is_read() -> None:
    reserved = {"devices": [{"driver": "cdi", "device_ids": ["huawei.com/npu=0"]}, {"capabilities": ["gpu"]}]}
    service = {
        "image": "i",
        "env_file": [{"path": "./a.env", "required": False}, "b.env"],
        "device_cgroup_rules": ["c 236:* rwm"],
        "deploy": {"resources": {"reservations": reserved}},
    }
    (found,) = containers_of([compose_file({"services": {"a": service}}, "x")])
    assert [(setting.key, setting.value) for setting in found.settings] == [
        ("env-file", "./a.env"), ("env-file", "b.env"), ("device-cgroup-rule", "c 236:* rwm"),
        ("device", "huawei.com/npu=0"), ("gpus", "all"),
    ]  # fmt: skip
    assert found.mounts == ()


def test_files_are_read_one_over_the_other() -> None:
    first = {"image": "i", "privileged": True, "devices": ["/dev/davinci0"], "volumes": ["${A:-/x}:/a", "/y:/b"]}
    second = {"devices": ["/dev/davinci1"], "volumes": ["/z:/a"], "privileged": None}
    tags = {("services", "a", "privileged"): RESET, ("services", "a", "devices"): OVERRIDE}
    files = [
        compose_file({"services": {"a": first, "b": {"image": "j"}}}, "1"),
        compose_file({"services": {"a": second}}, "2", tags),
    ]
    one, other = containers_of(files)
    assert (one.image, one.cards, one.switch("privileged"), other.image) == ("i", (1,), None, "j")
    assert sorted((mount.source, mount.target) for mount in one.mounts) == [("/y", "/b"), ("/z", "/a")]


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "it is one of Kubernetes"),
        ("docker run img", "build.py lint-run - < FILE"),
        ({"a": "b"}, "a compose file has a mapping `services:`"),
        ({"services": {}, "include": []}, "a compose file has a mapping `services:`"),
    ],
)
def test_a_file_of_another_kind_says_what_it_is(document: object, hint: str) -> None:
    with pytest.raises(UsageError, match="there are no services in it") as caught:
        compose_file(document, "x")
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("source", ["/a,b", '/a"b', "/a b", "/a\nb"])
def test_a_path_of_the_long_form_is_read_as_it_is(source: str) -> None:
    volume = {"type": "bind", "source": source, "target": "/x"}
    (found,) = containers_of([compose_file({"services": {"a": {"image": "i", "volumes": [volume]}}}, "x")])
    assert [(mount.source, mount.target, mount.kind) for mount in found.mounts] == [(source, "/x", "bind")]
