from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cannery.core.errors import UsageError
from cannery.edge.yaml_file import YamlDocument, read_yaml

if TYPE_CHECKING:
    from pathlib import Path


def read(tmp_path: Path, text: str | bytes) -> YamlDocument:
    path = tmp_path / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path, "images/x.yaml")


def test_values_and_where_they_stand(tmp_path: Path) -> None:
    document = read(tmp_path, 'a: 1\nb:\n  - x\n  - {c: 3.10}\n"d": [1]\n')
    assert document.value == {"a": 1, "b": ["x", {"c": 3.1}], "d": [1]}
    assert document.where(("a",)) == "images/x.yaml:1"
    assert document.where(("b", 1, "c")) == "images/x.yaml:4"
    assert document.texts["b", 1, "c"] == "3.10"


def test_what_has_no_line_is_where_its_parent_is(tmp_path: Path) -> None:
    document = read(tmp_path, "# comment\na:\n  b: 1\n")
    assert document.where(("a", "missing", "more")) == "images/x.yaml:2"
    assert document.where(()) == "images/x.yaml:2"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: [1, 2\nb: 3\n", "images/x.yaml:2", "broken YAML"),
        ("a: b: c\n", "images/x.yaml:1", "broken YAML"),
        ("ok: 1\n\ta: 1\n", "images/x.yaml:2", "broken YAML"),
        ("a: *nowhere\n", "images/x.yaml:1", "broken YAML"),
        ("a: 1\n---\nb: 2\n", "images/x.yaml:2", "broken YAML"),
        ("a: !!python/object:os.system x\n", "images/x.yaml:1", "broken YAML"),
        ("a: 1\nb: 2\na: 3\n", "images/x.yaml:3", "key 'a' stands twice"),
        ("a:\n  c: 1\n  c: 1\n", "images/x.yaml:3", "key 'c' stands twice"),
        ("l:\n  - {d: 1, d: 1}\n", "images/x.yaml:2", "key 'd' stands twice"),
        ("? [a, b]\n: 1\n", "images/x.yaml:1", "a key is a single word here"),
        ("", "images/x.yaml", "the file is empty"),
        ("# only a comment\n", "images/x.yaml", "the file is empty"),
        ("a: &a [*a]\n", "images/x.yaml", "inside its own anchor"),
        ("[" * 3000, "images/x.yaml", ""),
        (b"a: \xff\xfe\n", "images/x.yaml", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str | bytes, where: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert caught.value.where.startswith(where)
    assert what in caught.value.what
    assert "Traceback" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_yaml(tmp_path / "no.yaml", "images/no.yaml")


def test_merge_keys_and_aliases_are_yaml(tmp_path: Path) -> None:
    document = read(tmp_path, "a: &m\n  x: 1\nb:\n  <<: *m\n  y: 2\nc: *m\n")
    assert document.value["b"] == {"x": 1, "y": 2}
    assert document.value["c"] == {"x": 1}


@pytest.mark.parametrize("value", ["2026-11-31", "!!int foo", "1" * 5000])
def test_a_value_that_python_cannot_make_is_the_file_s_error(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"exclude_newer: {value}\n")
    with pytest.raises(UsageError, match=r"images/a\.yaml: a value cannot be read"):
        read_yaml(path, "images/a.yaml")
