"""The Ascend 950: run lines and tags as the field has them, and a compose file with both an A2 and a 950."""

from __future__ import annotations

from pathlib import Path

import pytest

from cannery.catalog.documents import parse_yaml
from cannery.catalog.io.read import load_catalog
from cannery.lint.command import run_lines
from cannery.lint.container import Container, Ground, read_image_name
from cannery.lint.files import containers_of
from cannery.lint.rules import lint_container
from cannery.plan import parse_tag
from cannery.vocab import Chip

CHIPS = load_catalog(Path(__file__).parents[2] / "images").chips
DRIVER = "/usr/local/Ascend/driver"
FILES = " ".join(f"-v {p}:{p}" for p in ("/usr/local/dcmi", "/etc/ascend_install.info", "/usr/local/bin/npu-smi"))
START = f"docker run --rm --shm-size 16g --device /dev/davinci0 --device /dev/davinci_manager {FILES}"
RIGHT = f"{START} --device /dev/hisi_hdc -v {DRIVER}:{DRIVER}:ro"
WRONG = (
    f"{START} --device /dev/devmm_svm --device /dev/hisi_hdc -v {DRIVER}/lib64:{DRIVER}/lib64:ro "
    f"-v {DRIVER}/version.info:{DRIVER}/version.info"
)
IMAGES = (
    "quay.io/ascend/vllm-ascend:v0.26.0rc1-950dt",
    "quay.io/ascend/vllm-ascend:v0.23.0-a5",
    "quay.io/ascend/vllm-ascend:v0.26.0rc1-950pr-openeuler",
    "quay.io/ascend/cann:9.1.0-950-ubuntu22.04-py3.12",
    "verl:v0.9.1-cann9.1.0-950",
    "team/npu-950:latest-950",
    "mine:9.1.0-950-ubuntu22.04-py3.12-0123456789ab",
    "mine:9.1.0-a5-ubuntu22.04-py3.12-0123456789ab",
)


def codes(text: str) -> list[str]:
    (line,) = run_lines(text).lines
    assert isinstance(line, Container)
    found = lint_container(line, Ground(CHIPS))
    return [f"{one.severity} {one.code}" for one in found]


@pytest.mark.parametrize("image", IMAGES)
def test_every_spelling_in_a_tag_is_the_950(image: str) -> None:
    assert read_image_name(image).chip is Chip.A5
    assert codes(f"{RIGHT} {image} bash") == []
    assert codes(f"{WRONG} {image} bash") == ["error run.driver.missing", "warning run.node.foreign"]


def test_a_tag_of_an_older_version_is_read_and_a_new_one_has_the_word_of_cann() -> None:
    for chip in ("950", "a5"):
        tag = f"9.1.0-{chip}-openeuler24.03-py3.12-0123456789ab-standin"
        assert str(parse_tag(tag)) == tag


def test_a_node_that_another_chip_has_is_an_error_only_where_that_chip_is_meant() -> None:
    a2 = "quay.io/ascend/cann:9.1.0-910b-ubuntu22.04-py3.12"
    assert codes(f"{WRONG} {a2}") == []
    assert codes(f"{RIGHT} {a2}") == ["error run.node.missing"]  # an A2 has devmm_svm


def test_a_compose_file_with_both_is_judged_by_service() -> None:
    text = f"""\
x-npu: &npu
  volumes: [{DRIVER}:{DRIVER}, "/usr/local/dcmi:/usr/local/dcmi", "/usr/local/bin/npu-smi:/usr/local/bin/npu-smi",
            "/etc/ascend_install.info:/etc/ascend_install.info"]
  shm_size: 16g
  devices: [/dev/davinci0, /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc]
x-npu-950: &new
  <<: *npu
  devices: [/dev/davinci0, /dev/davinci_manager, /dev/hisi_hdc]
services:
  a2: {{<<: *npu, image: "tuner:npu-910b-ubuntu"}}
  s950: {{<<: *new, image: "tuner:npu-950-ubuntu"}}
  mixed: {{<<: *npu, image: "tuner:npu-950-ubuntu"}}
"""
    found = {
        container.where: [f"{one.severity} {one.code}" for one in lint_container(container, Ground(CHIPS))]
        for container in containers_of([parse_yaml(text, "compose.yaml")])
    }
    assert list(found.values()) == [[], [], ["warning run.node.foreign"]]


@pytest.mark.parametrize(
    ("card", "image", "found"),
    [
        (15, "cann:9.1.0-910b-ubuntu22.04-py3.12", []),  # an A2 of the largest kind (200T A2 Box16)
        (16, "cann:9.1.0-910b-ubuntu22.04-py3.12", ["warning run.node.foreign"]),
        (15, "cann:9.1.0-a3-ubuntu22.04-py3.12", []),
        (8, "cann:9.1.0-310p-ubuntu22.04-py3.12", ["warning run.node.foreign"]),
    ],
)
def test_cards_of_the_largest_machine_are_known(card: int, image: str, found: list[str]) -> None:
    line = WRONG.replace("/dev/davinci0", f"/dev/davinci{card}")
    assert codes(f"{line} {image}") == found
