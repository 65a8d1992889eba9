"""Compose files that name others: what they include, and what their services extend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cannery.errors import UsageError
from cannery.lint.compose import containers_of
from cannery.lint.io.compose_files import read_compose

if TYPE_CHECKING:
    from pathlib import Path

    from cannery.lint.container import Container


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / next(iter(files))


def containers(path: Path) -> dict[str, Container]:
    return {one.where: one for one in containers_of([read_compose(path, path.name)])}


def test_what_a_file_includes_is_read_from_where_that_file_stands(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "compose.yaml": "include: [npu/a.yaml]\nservices: {web: {image: w}}",
            "npu/a.yaml": "include:\n- path: [b.yaml, ../c.yaml]\nservices: {a: {image: i}}",
            "npu/b.yaml": "services: {b: {image: i, devices: [/dev/davinci0]}}",
            "c.yaml": "services: {b: {devices: [/dev/davinci1], privileged: true}}",
        },
    )
    found = containers(path)
    assert list(found) == ["services.web", "npu/a.yaml: services.a", "npu/b.yaml: services.b"]
    assert found["npu/b.yaml: services.b"].cards == (0, 1)
    assert found["npu/b.yaml: services.b"].switch("privileged")


def test_a_service_extends_one_of_another_file_and_of_its_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "compose.yaml": """
services:
  train: {extends: {file: "${DIR:-base}/npu.yaml", service: npu}, image: i}
  again: {extends: {file: ./compose.yaml, service: train}, shm_size: 32g}
  npu: {extends: {file: base/npu.yaml}}
""",
            "base/npu.yaml": "services: {npu: {extends: {file: all.yaml, service: all}, devices: [/dev/davinci0]}}",
            "base/all.yaml": "services: {all: {shm_size: 16g, devices: [/dev/davinci_manager]}}",
        },
    )
    found = containers(path)
    assert list(found) == ["services.train", "services.again", "services.npu"], "what is extended is no container"
    for where, size in (("train", "16g"), ("again", "32g"), ("npu", "16g")):
        one = found[f"services.{where}"]
        assert (one.cards, one.value("shm-size"), one.opaque) == ((0,), size, ())
        assert [device.source for device in one.devices] == ["/dev/davinci_manager", "/dev/davinci0"]


def test_tags_of_compose_take_a_key_out_or_let_it_stand_alone(tmp_path: Path) -> None:
    text = "services:\n  a:\n    privileged: !reset null\n    devices: !override [/dev/davinci1]\n"
    base = written(tmp_path, {"1.yaml": "services: {a: {image: i, privileged: true, devices: [/dev/davinci0]}}"})
    (found,) = containers_of([read_compose(base, "1"), read_compose(written(tmp_path, {"2.yaml": text}), "2")])
    assert (found.switch("privileged"), found.cards) == (None, (1,))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("other.yaml", "there is no such file"),
        ("https://host/x.git", "it is not on this machine"),
        ("oci://host/x:1", "it is not on this machine"),
        ("${DIR}/x.yaml", "a variable is in it"),
    ],
)
def test_a_file_that_is_not_here_is_told(tmp_path: Path, entry: str, why: str) -> None:
    text = f"include: ['{entry}']\nservices: {{a: {{extends: {{file: '{entry}', service: b}}}}}}"
    path = written(tmp_path, {"x.yaml": text})
    file = read_compose(path, "x.yaml")
    assert file.unread == (f"{entry}: {why}",)
    (found,) = containers_of([file])
    assert found.opaque == ("services.a.extends",)


def test_files_that_include_one_another_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"a.yaml": "include: [b.yaml]", "b.yaml": "include: [a.yaml]"})
    with pytest.raises(UsageError, match="the files name one another in a circle"):
        read_compose(path, "a.yaml")


def test_files_whose_services_extend_one_another_are_read_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "a.yaml": "services: {x: {extends: {file: b.yaml, service: y}}, z: {image: i}}",
            "b.yaml": "services: {y: {image: j}, w: {extends: {file: a.yaml, service: z}}}",
        },
    )
    found = containers(path)
    assert (found["services.x"].image, found["services.x"].opaque) == ("j", ())


def test_an_entry_of_no_form_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"a.yaml": "include: [{env_file: x}]"})
    with pytest.raises(UsageError, match=r"include\[0\] names no file"):
        read_compose(path, "a.yaml")
