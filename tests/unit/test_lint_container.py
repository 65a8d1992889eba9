from __future__ import annotations

import pytest

from cannery.lint.container import Container, Device, Mount, Setting


def container(*pairs: tuple[str, str | None]) -> Container:
    return Container("image", tuple(Setting(key, value, f"--{key} {value}") for key, value in pairs))


@pytest.mark.parametrize(
    ("text", "source", "target", "permissions"),
    [
        ("/dev/a", "/dev/a", "/dev/a", "rwm"),
        ("/dev/a:/dev/b", "/dev/a", "/dev/b", "rwm"),
        ("/dev/a:r", "/dev/a", "/dev/a", "r"),
        ("/dev/a:/dev/b:mr", "/dev/a", "/dev/b", "mr"),
    ],
)
def test_devices(text: str, source: str, target: str, permissions: str) -> None:
    (found,) = container(("device", text)).devices
    assert found == Device(source, target, permissions, Setting("device", text, f"--device {text}"))


@pytest.mark.parametrize(
    ("key", "text", "source", "target", "kind"),
    [
        ("volume", "/a:/b", "/a", "/b", "bind"),
        ("volume", "/a:/b:ro,z", "/a", "/b", "bind"),
        ("volume", "name:/b", "name", "/b", "volume"),
        ("volume", "./a:/b", "./a", "/b", "bind"),
        ("volume", "$(f a:b):/b:ro", "$(f a:b)", "/b", "bind"),
        ("volume", "${A:-/a}:/b", "${A:-/a}", "/b", "bind"),
        ("volume", "<a:b>:/b", "<a:b>", "/b", "bind"),
        ("volume", "/b", "", "/b", "volume"),
        ("mount", "type=bind,src=/a,dst=/b,readonly", "/a", "/b", "bind"),
        ("mount", "type=volume,source=name,destination=/b", "name", "/b", "volume"),
        ("mount", "type=tmpfs,target=/b", "", "/b", "tmpfs"),
        ("tmpfs", "/b:size=1g", "", "/b", "tmpfs"),
    ],
)
def test_mounts(key: str, text: str, source: str, target: str, kind: str) -> None:
    (found,) = container((key, text)).mounts
    assert (found.source, found.target, found.kind) == (source, target, kind)


@pytest.mark.parametrize(
    ("mount", "path", "gives", "hides"),
    [
        ("/a:/a", "/a", True, True),
        ("/a:/a", "/a/b", True, True),
        ("/a/:/a/", "/a", True, True),
        ("/a/:/a/", "/a/b", True, True),
        ("/a:/a", "/ab", False, False),
        ("/a/b:/a/b", "/a", False, False),
        ("/x:/a", "/a", False, True),
        ("/x:/a", "/a/b", False, True),
        ("/:/", "/a", True, True),
        ("/:/host", "/a", False, False),
        ("/host/a:/a", "/a", False, True),
    ],
)
def test_what_a_mount_gives_and_hides(mount: str, path: str, gives: bool, hides: bool) -> None:
    (found,) = container(("volume", mount)).mounts
    assert isinstance(found, Mount)
    assert (found.gives(path), found.hides(path)) == (gives, hides)


def test_a_setting_that_is_given_twice() -> None:
    found = container(("shm-size", "1g"), ("shm-size", "2g"), ("privileged", "true"), ("privileged", "false"))
    assert (found.value("shm-size"), found.value("user"), found.switch("privileged")) == ("2g", "", None)
    assert container(("privileged", None)).switch("privileged") is not None


def test_variables() -> None:
    found = container(("env", "A=1"), ("env", "B"), ("env", "A=2=3")).env
    assert {name: variable.value for name, variable in found.items()} == {"A": "2=3", "B": None}
