from __future__ import annotations

import pytest

from cannery.lint.container import Container, Mount, Setting


def container(*pairs: tuple[str, str | None]) -> Container:
    return Container("image", tuple(Setting(key, value, f"--{key} {value}") for key, value in pairs))


@pytest.mark.parametrize("text", ["/dev/a", "/dev/a:/dev/b", "/dev/a:r", "/dev/a:/dev/b:mr"])
def test_devices(text: str) -> None:
    assert [device.source for device in container(("device", text)).devices] == ["/dev/a"]


@pytest.mark.parametrize(
    ("key", "text", "source", "target"),
    [
        ("volume", "/a:/b", "/a", "/b"),
        ("volume", "/a:/b:ro,z", "/a", "/b"),
        ("volume", "name:/b", "name", "/b"),
        ("volume", "./a:/b", "./a", "/b"),
        ("volume", "$(f a:b):/b:ro", "$(f a:b)", "/b"),
        ("volume", "${A:-/a}:/b", "${A:-/a}", "/b"),
        ("volume", "<a:b>:/b", "<a:b>", "/b"),
        ("volume", "/b", "", "/b"),
        ("mount", "type=bind,src=/a,dst=/b,readonly", "/a", "/b"),
        ("mount", "type=volume,source=name,destination=/b", "name", "/b"),
        ("mount", "type=tmpfs,target=/b", "", "/b"),
        ("tmpfs", "/b:size=1g", "", "/b"),
    ],
)
def test_mounts(key: str, text: str, source: str, target: str) -> None:
    (found,) = container((key, text)).mounts
    assert (found.source, found.target) == (source, target)


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
    assert (found.value("shm-size"), found.value("user"), found.privileged) == ("2g", "", None)
    assert container(("privileged", None)).privileged is not None


def test_variables() -> None:
    found = container(("env", "A=1"), ("env", "B"), ("env", "A=2=3")).env
    assert {name: variable.value for name, variable in found.items()} == {"A": "2=3", "B": None}
