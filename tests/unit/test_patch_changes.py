"""What a change of a Python file is, by its syntax."""

from __future__ import annotations

import textwrap

import pytest

from cannery.errors import FindingsError
from cannery.patches.summary import changed_names


def changes(before: str | None, after: str | None, path: str = "verl/x.py") -> list[str]:
    old, new = (None if text is None else textwrap.dedent(text).encode() for text in (before, after))
    return [f"{one.action} {one.kind} {one.name}" for one in changed_names(path, old, new)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("def f(): return 1\n", "def f(): return 2\n", ["replaced method f"]),
        ("def f(): return 1\n", "async def f(): return 1\n", ["replaced method f"]),
        ("def f(): ...\n", "@cache\ndef f(): ...\n", ["replaced method f"]),
        ("def f(): ...\ndef g(): ...\n", "def g(): ...\ndef h(): ...\n", ["added method h", "deleted method f"]),
        ("A = 1\nB: int = 2\n", "A = 2\nB: float = 2\nC: int\n",
         ["replaced attribute A", "replaced attribute B", "added attribute C"]),
        ("a, *b = 1, 2, 3\n", "a, *b = 1, 2, 4\n", ["replaced attribute a", "replaced attribute b"]),
        ("__all__ = ['a']\n", "__all__ = ['a']\n__all__ += ['b']\n", ["replaced attribute __all__"]),
        ("", "import a.b as c\n", ["added module_attr c"]),
        ("import a\n", "import a\nimport a.b\n", ["replaced module_attr a"]),
        ("from x import a\n", "from x import (a, b as c)\n", ["added module_attr c"]),
        ("from x import a\n", "from .x import a\n", ["replaced module_attr a"]),
        ("from x import f\n", "def f(): ...\n", ["replaced method f"]),
        ("", "for name in names: pass\n", ["added attribute name"]),
        ("", "with open(p) as (f, g): TEXT = f\n",
         ["added attribute f", "added attribute g", "added attribute TEXT"]),
        ("'a'\n", "'b'\n", []),
        ("f(1)\n", "f(2)\ndel a\n", []),
        ("if a:\n    def f(): return 1\n", "if a:\n    def f(): return 2\n", ["replaced method f"]),
        ("if a:\n    def f(): ...\n", "if b:\n    def f(): ...\n", ["replaced method f"]),
        ("import x\n", "if TYPE_CHECKING:\n    import x\n", ["replaced module_attr x"]),
        ("", "try:\n    import x\nexcept ImportError:\n    x = None\nelse:\n    y = 1\nfinally:\n    z = 1\n",
         ["added attribute x", "added attribute y", "added attribute z"]),
        ("try:\n    pass\nexcept A:\n    x = 1\n", "try:\n    pass\nexcept B:\n    x = 1\n",
         ["replaced attribute x"]),
        ("", "match v:\n    case 1 if a:\n        x = 1\n    case _:\n        y = 1\n",
         ["added attribute x", "added attribute y"]),
        ("", "while a:\n    x = 1\n", ["added attribute x"]),
    ],
)  # fmt: skip
def test_names_of_a_module(before: str, after: str, expected: list[str]) -> None:
    assert changes(before, after) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(a):\n    return a\n", "# why\n\n\ndef f( a ):\n\n    return (a)  # so\n"),
        ("import a, b\n", "import b\nimport a\n"),
        ("def f(): ...\nclass A: ...\n", "class A:\n    ...\n\n\ndef f(): ...\n"),
        ("x = 1\r\n", "x = 1\n"),
    ],
)
def test_comments_layout_and_order_are_no_change(before: str, after: str) -> None:
    assert changes(before, after) == []


def test_definitions_of_one_name_count_together() -> None:
    before = """
        @overload
        def f(a: int) -> int: ...
        @overload
        def f(a: str) -> str: ...
        def f(a): return a
    """
    assert changes(before, before.replace("a: str", "a: bytes")) == ["replaced method f"]


CLASS = "class A(B):\n    x = 1\n    def f(self): return 1\n    class C:\n        def g(self): ...\n"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (CLASS, CLASS.replace("return 1", "return 2"), ["updated class A", "replaced method A.f"]),
        (CLASS, CLASS.replace("x = 1", "z = 1"), ["updated class A", "added attribute A.z", "deleted attribute A.x"]),
        (CLASS, CLASS.replace("(B)", "(D)"), ["updated class A"]),
        (CLASS, "@dataclass\n" + CLASS, ["updated class A"]),
        (CLASS, CLASS.replace("def g(self)", "def g(self, a)"),
         ["updated class A", "updated class A.C", "replaced method A.C.g"]),
        ("", "class A:\n    x = 1\n    class B: ...\n",
         ["added class A", "added attribute A.x", "added class A.B"]),
        ("class A:\n    def f(self): ...\n", "", ["deleted class A", "deleted method A.f"]),
    ],
)  # fmt: skip
def test_classes(before: str, after: str, expected: list[str]) -> None:
    assert changes(before, after) == expected


def test_a_new_file_and_one_that_goes() -> None:
    text = "import os\nclass A:\n    x = 1\n"
    assert changes(None, text) == ["added module_attr os", "added class A", "added attribute A.x"]
    assert changes(text, None) == ["deleted module_attr os", "deleted class A", "deleted attribute A.x"]


def test_a_file_that_is_no_python_has_no_names() -> None:
    assert changes(None, "def f(", "a/run.sh") == []
    assert changes("x: int", "x: str", "a/b.pyi") == ["replaced attribute x"]


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (b"x = 1\n", b"x = 1\ndef f(\n", "verl/x.py:2: with the patch, the file is not Python: "),
        (b"\n\n1 +\n", b"x = 1\n", "verl/x.py:3: before the patch, the file is not Python: "),
        (None, b"x = '\x00'\n", "verl/x.py:1: with the patch"),
        (None, b"x = '\xff'\n", "verl/x.py:1: with the patch"),
        (None, b"# coding: nonesuch\n", "verl/x.py:1: with the patch"),
        (None, b"(" * 5000 + b")" * 5000, "verl/x.py:1: with the patch"),
    ],
)
def test_what_is_no_python_is_named_with_its_line(before: bytes | None, after: bytes, what: str) -> None:
    with pytest.raises(FindingsError) as caught:
        changed_names("verl/x.py", before, after)
    assert str(caught.value).startswith(what)


def test_what_is_nested_too_deeply_is_no_traceback() -> None:
    deep = b"x = " + b" + ".join([b"1"] * 3000) + b"\n"
    with pytest.raises(FindingsError, match=r"^verl/x.py"):
        changed_names("verl/x.py", None, deep)


def test_a_text_with_an_unknown_escape_warns_of_nothing() -> None:
    assert changes("", "x = '\\d'\n") == ["added attribute x"]
