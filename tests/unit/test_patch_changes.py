"""What a change of a Python file is, by its syntax, and the functions that it brings into force."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from cannery.errors import FindingsError
from cannery.patches.syntax import Function, changed_names, in_force

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


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
    with pytest.raises(FindingsError, match=r"^verl/x.py"):
        in_force(None, b"def f():\n    " + deep, path="verl/x.py")


def test_in_force_names_the_line_of_what_is_no_python() -> None:
    for before, after in ((None, b"x = 1\ndef f(\n"), (b"x = 1\ndef f(\n", b"")):
        with pytest.raises(FindingsError, match=r"^verl/x.py:2: "):
            in_force(before, after, path="verl/x.py")
    for data in (b"# coding: nonesuch\n", b"x = '\xff'\n"):
        with pytest.raises(FindingsError, match=r"^verl/x.py:1: "):
            in_force(None, data, path="verl/x.py")


def test_a_text_with_an_unknown_escape_warns_of_nothing() -> None:
    assert changes("", "x = '\\d'\n") == ["added attribute x"]


# --- in_force

OLD = "def kept(): return 1\ndef f(): return 1\nclass A:\n    def m(self): return 1\n    def n(self): return 1\n"


def names(before: str | None, after: str) -> list[str]:
    """Names in force."""
    old = None if before is None else textwrap.dedent(before).encode()
    found = in_force(old, textwrap.dedent(after).encode())
    return [one.qualname for one in found]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (OLD, OLD, []),
        (OLD, "# moved\n\n" + OLD, []),
        (OLD, OLD.replace("def f(): return 1", "def f(): return 2"), ["f"]),
        (OLD, OLD.replace("def n(self): return 1", "def n(self): return 2"), ["A.n"]),
        (None, OLD, ["kept", "f", "A.m", "A.n"]),
        ("", "class A:\n    class B:\n        async def f(self): ...\n", ["A.B.f"]),
        ("", "def f():\n    def inner(): ...\n", ["f"]),
        ("", "if a:\n    def f(): ...\n", ["f"]),
        ("", "if a:\n    class A:\n        def f(self): ...\n", ["A.f"]),
        ("", "try:\n    def f(): ...\nfinally:\n    pass\n", ["f"]),
        ("", "with a:\n    def f(): ...\n", ["f"]),
        ("", "if a:\n    def f(): return 1\nelse:\n    def f(): return 2\n", []),
        ("", "try:\n    from x import f\nexcept ImportError:\n    def f(): ...\n", []),
        ("", "if TYPE_CHECKING:\n    def f(): ...\n", []),
        ("", "if typing.TYPE_CHECKING:\n    def f(): return 1\nelse:\n    def f(): return 2\n", ["f"]),
        ("", "def f(): ...\nf = wrapped(f)\n", []),
        ("", "def f(): ...\nf.retries = 3\n", []),
        ("", "class A:\n    def f(self): ...\nA.f = g\n", []),
        ("", "def f(): ...\ndef f(a): ...\n", ["f"]),
        ("", "class A:\n    def f(self): ...\nclass A:\n    def g(self): ...\n", ["A.g"]),
        ("class A:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): ...\n",
         "class A:\n    @property\n    def p(self): return 2\n    @p.setter\n    def p(self, v): ...\n", ["A.p"]),
        ("class A:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): ...\n",
         "class A:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): self.v = v\n",
         ["A.p.fset"]),
        ("", "class A:\n    @property\n    def p(self): ...\n    @p.deleter\n    def p(self): ...\n",
         ["A.p", "A.p.fdel"]),
    ],
)  # fmt: skip
def test_functions_in_force(before: str | None, after: str, expected: list[str]) -> None:
    assert names(before, after) == expected


def test_the_hash_is_of_the_lines_from_the_decorator_to_the_end() -> None:
    text = (
        b"class A:\r\n    @staticmethod\r\n    def f(a,  \r\n          b):\r\n        return a   # so\r\n\r\nx = 1\r\n"
    )
    lines = "@staticmethod\ndef f(a,\n      b):\n    return a   # so"
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert in_force(None, text) == (Function("A.f", digest),)


def test_a_source_in_another_encoding_is_read_as_it_says() -> None:
    text = "# coding: latin-1\ndef f(): return 'é'\n"
    (function,) = in_force(None, text.encode("latin-1"))
    assert function.sha256 == hashlib.sha256("def f(): return 'é'".encode()).hexdigest()


RUNNING = '''\
import functools


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@wrapped
@wrapped
def f(a):
    """Text
  with less indent.\x0c
    """
    return [
        a,

    ]


class A:
    @property
    def p(self): return 1

    @p.setter
    @wrapped
    def p(self, value):
        pass

    @functools.cached_property
    def c(self):
        return 1

    @staticmethod
    def s():
        return (lambda: 1)()

    @classmethod
    @wrapped
    def k(cls):
        return 1

    class B:
        async def g(self):
            return 1
'''


def running(module: ModuleType, qualname: str) -> str:
    """The hash found from what runs, as `in_force` says; `inspect` finds the end of a function on its own."""
    value: Any = module
    for word in qualname.split("."):
        value = inspect.getattr_static(value, word) if inspect.isclass(value) else getattr(value, word)
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, functools.cached_property):
        value = value.func
    lines, _first = inspect.getsourcelines(inspect.unwrap(value))
    text = textwrap.dedent("".join(lines)).rstrip("\n")
    return hashlib.sha256("\n".join(line.rstrip() for line in text.split("\n")).encode()).hexdigest()


def test_what_runs_has_the_hash_that_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "running.py"
    path.write_text(RUNNING)
    spec = importlib.util.spec_from_file_location("running", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    recorded = {one.qualname: one.sha256 for one in in_force(None, RUNNING.encode())}
    assert list(recorded) == ["wrapped", "f", "A.p", "A.p.fset", "A.c", "A.s", "A.k", "A.B.g"]
    assert {name: running(module, name) for name in recorded} == recorded
