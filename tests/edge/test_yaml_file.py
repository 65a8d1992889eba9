from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cannery.catalog.documents import DEEPEST, MOST_NODES, YamlDocument
from cannery.catalog.io.read import MOST_BYTES, read_yaml
from cannery.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def read(tmp_path: Path, text: str | bytes) -> YamlDocument:
    path = tmp_path / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path, "images/x.yaml")


def test_values_and_where_they_stand(tmp_path: Path) -> None:
    document = read(tmp_path, 'a: 1\nb:\n  - x\n  - {c: 3.10}\n"d": [1]\n')
    assert document.value == {"a": "1", "b": ["x", {"c": "3.10"}], "d": ["1"]}
    assert document.where(("a",)) == "images/x.yaml:1"
    assert document.where(("b", 1, "c")) == "images/x.yaml:4"


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
        ("a: !!python/object:os.system x\n", "images/x.yaml:1", "the tag !!python/object:os.system has no use here"),
        ("a: 1\nb: 2\na: 3\n", "images/x.yaml:3", "key 'a' is given twice"),
        ("a:\n  c: 1\n  c: 1\n", "images/x.yaml:3", "key 'c' is given twice"),
        ("l:\n  - {d: 1, d: 1}\n", "images/x.yaml:2", "key 'd' is given twice"),
        ("? [a, b]\n: 1\n", "images/x.yaml:1", "a key is a single word here"),
        ("", "images/x.yaml", "the file is empty"),
        ("# only a comment\n", "images/x.yaml", "the file is empty"),
        ("a: &a [*a]\n", "images/x.yaml:1", "nested more than 50 levels deep"),
        ("[" * 3000, "images/x.yaml", ""),
        (b"b: 1\na: \xff\xfe\n", "images/x.yaml:2", "is not UTF-8 text"),
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
    assert document.value["b"] == {"x": "1", "y": "2"}
    assert document.value["c"] == {"x": "1"}


def test_numbers_and_dates_are_texts(tmp_path: Path) -> None:
    long = "1" * 5000
    document = read(tmp_path, f"a: [3.10, 010, 1e5, 2026-11-31, {long}, yes, ~]\n3: 4\n")
    assert document.value == {"a": ["3.10", "010", "1e5", "2026-11-31", long, True, None], "3": "4"}


@pytest.mark.parametrize(
    "value",
    [
        "!!set {a}",
        "!!omap [a: 1]",
        "!!binary YQ==",
        "!mine x",
        "!!bool xx",
        "{!!int a: b}",
        "!!python/name:os.system ''",
        "!!int 3",
        "!!timestamp abc",
    ],
)
def test_a_tag_that_means_nothing_here(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match=r"the tag .* has no use here") as caught:
        read(tmp_path, f"a: 1\nb: {value}\n")
    assert (caught.value.where, caught.value.hint) == ("images/x.yaml:2", "remove it")


def test_a_tag_that_says_what_is_there_changes_nothing(tmp_path: Path) -> None:
    document = read(tmp_path, "a: !!str 3.10\nb: !!bool 'on'\nc: !!map {d: !!null ''}\n")
    assert document.value == {"a": "3.10", "b": True, "c": {"d": None}}


def multiplied(first: str, one: str, count: int = 40) -> str:
    """Lines each of which names the one before twice or more."""
    return f"a0: &a0 {first}\n" + "".join(f"a{n}: &a{n} {one.format(n - 1)}\n" for n in range(1, count))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (multiplied("[x, x]", "[*a{0}, *a{0}, *a{0}]"), "more than 100000 values, aliases counted in full"),
        (multiplied("{x: 1}", "{{<<: [*a{0}, *a{0}]}}"), "more than 100000 values, aliases counted in full"),
        (multiplied("[x]", "[*a{0}]", count=60), "nested more than 50 levels deep"),
        ("a: [" + "1," * 100_000 + "]\n", "more than 100000 values"),
        ("a: " + "[" * 51 + "]" * 51, "nested more than 50 levels deep"),
        ("a: " + "[" * 900 + "]" * 900, "nested more than 50 levels deep"),
        ("[" * 300_000, "broken YAML: exceeded maximum nesting depth"),
        ("".join(f"{' ' * n}a:\n" for n in range(1200)), "broken YAML: exceeded maximum nesting depth"),
        ("#" * (1 << 20) + "\n", "is larger than 1 MiB"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_no_time(tmp_path: Path, text: str, what: str) -> None:
    begin = time.process_time()
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert what in caught.value.what
    assert caught.value.where.startswith("images/x.yaml")
    assert caught.value.hint
    assert time.process_time() - begin < 10


def test_the_bounds_are_far_from_the_files_that_there_are(root: Path) -> None:
    for path in (root / "images").rglob("*.yaml"):
        document = read_yaml(path, path.name)
        assert len(document.lines) < MOST_NODES / 20, path
        assert max(map(len, document.lines)) < DEEPEST / 3, path
        assert path.stat().st_size < MOST_BYTES / 10, path


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_their_editor_ends_them(tmp_path: Path, end: str) -> None:
    document = read(tmp_path, end.join(["# first", "a: 1", "b:", "  - x", "c: |", "  two", "  lines", ""]))
    assert document.value == {"a": "1", "b": ["x"], "c": "two\nlines\n"}
    assert [document.where((key,)) for key in "abc"] == [f"images/x.yaml:{line}" for line in (2, 3, 5)]


@pytest.mark.parametrize("text", ["\r", "\r\n\r", "\ufeff", "---\n"])
def test_a_file_without_content(tmp_path: Path, text: str) -> None:
    if text == "---\n":
        assert read(tmp_path, text).value is None
        return
    with pytest.raises(UsageError, match="the file is empty"):
        read(tmp_path, text)


def test_only_a_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "endless.yaml").symlink_to("/dev/zero")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for name in ("pipe", "folder", "endless"):
        with pytest.raises(UsageError, match="is not a regular file"):
            read_yaml(tmp_path / f"{name}.yaml", name)
    with pytest.raises(UsageError, match="cannot be read"):
        read_yaml(tmp_path / "loop.yaml", "loop")


TAGS = [
    "",
    "!!int ",
    "!!float ",
    "!!bool ",
    "!!null ",
    "!!timestamp ",
    "!!str ",
    "!!merge ",
    "!!value ",
    "!!map ",
    "! ",
]
SCALARS = st.text() | st.sampled_from(
    ["", "-", ".", "=", "<<", "0x", "1:2", "1e9", "~", "2026-02-30", "&a", "*a", "NaN"]
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(TAGS),
    SCALARS,
    st.sampled_from(["{0}", "a: {0}", "{0}: a", "[{0}, {0}]", "<<: {0}", "- &x {0}\n- *x"]),
)
def test_any_text_is_read_or_refused_with_its_file(tmp_path: Path, tag: str, scalar: str, form: str) -> None:
    for text in (json.dumps(scalar, ensure_ascii=False), scalar):
        fault = refusal(tmp_path, form.format(tag + text).encode("utf-8", "surrogatepass"))
        assert fault is None or (fault.where.startswith("images/x.yaml") and fault.what and fault.hint)


def refusal(tmp_path: Path, text: bytes) -> UsageError | None:
    try:
        read(tmp_path, text)
    except UsageError as error:
        return error
    return None
