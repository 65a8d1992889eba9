"""Defects that can be read from what a patch adds, and what looks like one and is none."""

from __future__ import annotations

import pytest

from cannery.errors import FindingsError
from cannery.patches.patch_defects import Defect, added_lines, attribute_names, defects, defined_names

KNOWN = frozenset({"unsqueeze", "contiguous", "requires_grad", "enable", "npu_v1", "get_size", "to_json", "shape"})


def found(before: str | None, after: str, known: frozenset[str] = KNOWN) -> list[tuple[int, str]]:
    old = None if before is None else before.encode()
    return [(one.line, one.what) for one in defects("a/x.py", old, after.encode(), known)]


FORWARD = "class MLP:\n    def forward(self, x):\n        return self.up(x)\n"


def test_an_undefined_name_is_told_once_a_function_with_where_it_fails() -> None:
    after = FORWARD.replace("self.up(x)", "self.up(hidden, hidden,\n            hidden)")
    assert defects("a/x.py", FORWARD.encode(), after.encode(), KNOWN) == (
        Defect("a/x.py", 3, "undefined name 'hidden'", "NameError when MLP.forward runs"),
    )


def test_a_defect_outside_all_functions_and_in_a_nested_one() -> None:
    after = "def f():\n    def g():\n        return nothing\n    return g\n\n\nx = nothing\n"
    assert [str(one) for one in defects("x.py", None, after.encode(), KNOWN)] == [
        "x.py:3: undefined name 'nothing' (NameError when f.g runs)",
        "x.py:7: undefined name 'nothing' (NameError when the module is imported)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    print(a)\n    a = 1\n", [(2, "undefined name 'a'")]),
        (
            "a = 1\ndef f():\n    print(a)\n    a = 2\n",
            [(3, "local variable 'a' defined in enclosing scope on line 1 referenced before assignment")],
        ),
        ("def f(a, a): ...\n", [(1, "duplicate argument 'a' in function definition")]),
        ("return 1\n", [(1, "'return' outside function")]),
        ("x = '%d %d' % (1,)\n", [(1, "'...' % ... has 2 placeholder(s) but 1 substitution(s)")]),
        ("x = '{} {a}'.format(1)\n", [(1, "'...'.format(...) is missing argument(s) for placeholder(s): a")]),
        ("x = '{0} {}'.format(1, 2)\n", [(1, "'...'.format(...) mixes automatic and manual numbering")]),
        ("raise NotImplemented\n", [(1, "'raise NotImplemented' should be 'raise NotImplementedError'")]),
        ("__all__ = ['a']\n", [(1, "undefined name 'a' in __all__")]),
        # matters of taste
        ("import os\nfrom a import b\n", []),
        ("def f(): ...\ndef f(): ...\n", []),
        ("def f():\n    a = 1\n", []),
        ("x = f'a'\n", []),
        ("x = {'a': 1, 'a': 2}\n", []),
        ("from a import *\nx = anything\n", []),
        ("try:\n    x = maybe\nexcept NameError:\n    x = 1\n", []),
    ],
)
def test_what_fails_is_told_and_what_is_only_ugly_is_not(text: str, expected: list[tuple[int, str]]) -> None:
    assert found(None, text) == expected


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("def f(x: T): ...\n", True),
        ("x: T = 1\n", True),
        ("x: list[T] = 1\n", True),
        ("def f(x: 'T') -> 'T': ...\n", False),
        ("def f(x: list['T']): ...\n", False),
        ("from __future__ import annotations\ndef f(x: T, *a: T, **k: T) -> T: ...\n", False),
        ("from __future__ import annotations\nclass A:\n    x: T\n", False),
        ("from __future__ import annotations\ndef f(x=T): ...\n", True),
        ("def f():\n    x: T = 1\n    return x\n", False),
        ("def f():\n    x: int = T\n    return x\n", True),
    ],
)
def test_an_annotation_fails_only_where_it_is_evaluated(text: str, is_told: bool) -> None:
    assert [what for _line, what in found(None, text)] == ["undefined name 'T'"] * is_told


def test_what_was_wrong_before_is_not_the_patchs() -> None:
    before = "def f():\n    return gone\n"
    assert found(before, "import os\n" + before) == []
    assert found(before, before.replace("    return", "    # moved\n        \n    return")) == []
    assert found(before, before + "def g():\n    return gone\n") == [(4, "undefined name 'gone'")]
    assert found(before, before.replace("return gone", "return  gone")) == []


def test_an_import_that_goes_while_it_is_used_is_told_where_it_is_used() -> None:
    before = "import os\nimport re\n\n\ndef f():\n    return os.sep\n"
    assert found(before, before.replace("import os\n", "")) == [(5, "undefined name 'os'")]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("unsqueese", "unsqueeze"),
        ("unsqeueze", "unsqueeze"),
        ("contigous", "contiguous"),
        ("requres_grad", "requires_grad"),
    ],
)
def test_a_misspelt_attribute(name: str, near: str) -> None:
    what = f"attribute `{name}` is known nowhere in the tree; `{near}` is"
    assert found("def f(x): ...\n", f"def f(x):\n    return (x\n        .{name}())\n") == [(3, what)]


@pytest.mark.parametrize(
    "body",
    [
        "return x.unsqueeze()",  # known
        "return x.enabled",  # another word, not a slip
        "return x.get_sizes()",
        "return x.npu_v2",  # a number
        "return x.tojson()",  # another way to write the same
        "return x.shp",  # too short
        "return x.squeese",  # begins otherwise
        "x.unsqueese = 1",  # defines it
        "return getattr(x, 'unsqueese', None) or x.unsqueese",
        "def unsqueese(): ...\n    return x.unsqueese",
        "return unsqueese",
    ],
)
def test_an_attribute_that_is_meant_as_it_is_written(body: str) -> None:
    assert [what for _line, what in found("", f"def f(x):\n    {body}\n") if "attribute" in what] == []


def test_a_misspelt_attribute_that_was_there_before_is_not_the_patchs() -> None:
    before = "def f(x):\n    return x.unsqueese()\n"
    assert found(before, before + "\n\ndef g(x):\n    return x.unsqueese(1)\n") == []


def test_a_name_that_another_patched_file_defines_is_known() -> None:
    other = b"class C:\n    enabler: int = 1\n    def from_dict_configs(self): self.shapen = 'npu_word'\n"
    names = defined_names("b.py", other)
    assert names == {"C", "enabler", "from_dict_configs", "shapen", "npu_word"}
    after = "def f(c):\n    return c.from_dict_configs()\n"
    known = frozenset({"from_dict_kconfigs"})
    assert found("", after, known) == [
        (2, "attribute `from_dict_configs` is known nowhere in the tree; `from_dict_kconfigs` is")
    ]
    assert found("", after, known | names) == []


def test_the_names_that_a_tree_knows() -> None:
    text = b"""\
import a.b
class Klass(Base):
    field: int
    other = 1
    async def method(self, argument):
        return self.x.y(keyword=1) . z
    def \xc3\xa9(self): ...
"""
    assert attribute_names(text) == {"b", "Klass", "field", "other", "method", "x", "y", "z"}
    assert attribute_names(b"def f(:\n print 'no Python 3'\n") == {"f"}


NPU = "if is_npu():\n    import torch_npu\n\n\n"
PLAIN = "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"


@pytest.mark.parametrize(
    ("head", "body", "is_told"),
    [
        (NPU, "return torch_npu.run(x)", True),
        (NPU, "with x:\n        y = torch_npu.run(x)", True),
        (NPU, "if torch_npu.ok:\n        return x", True),
        (NPU, "return torch_npu.run(x) and x", True),
        (
            "try:\n    pass\nfinally:\n" + "    if is_npu():\n        import torch_npu\n",
            "return torch_npu.run(x)",
            True,
        ),
        # somebody asks
        (NPU, "if is_npu():\n        return torch_npu.run(x)\n    return x", False),
        (NPU, "if not is_npu():\n        return x\n    return torch_npu.run(x)", False),
        (NPU, "assert is_npu()\n    return torch_npu.run(x)", False),
        (NPU, "return torch_npu.run(x) if is_npu() else x", False),
        (NPU, "return is_npu() and torch_npu.run(x)", False),
        (NPU, "try:\n        return torch_npu.run(x)\n    except NameError:\n        return x", False),
        (NPU, "y: torch_npu.T = x\n    return lambda: torch_npu", False),
        # it is always bound
        (NPU.replace("\n\n\n", "\nelse:\n    torch_npu = None\n"), "return torch_npu", False),
        ("import torch_npu\n", "return torch_npu.run(x)", False),
        (NPU, "import torch_npu\n    return torch_npu.run(x)", False),
        (NPU, "torch_npu = x\n    return torch_npu", False),
    ],
)
def test_a_name_that_is_bound_under_a_condition_and_used_without(head: str, body: str, is_told: bool) -> None:
    head = f"from a import is_npu\n{head}"
    after = head + PLAIN.replace("return x", body, 1)
    line = next(at for at, one in enumerate(after.split("\n"), 1) if "torch_npu" in one and at > head.count("\n"))
    what = "`torch_npu` is used whether or not is_npu(), which alone binds it"
    assert found(head + PLAIN, after) == ([(line, what)] if is_told else [])


def test_a_new_function_may_be_meant_for_where_the_condition_holds() -> None:
    after = f"from a import is_npu\n{NPU}{PLAIN}def fused(x):\n    return torch_npu.run(x)\n"
    assert found(f"from a import is_npu\n{NPU}{PLAIN}", after) == []
    assert found(None, after) == []


def test_a_function_that_used_the_name_before_is_left() -> None:
    before = f"from a import is_npu\n{NPU}def f(x):\n    return torch_npu.run(x)\n"
    assert found(before, before.replace("run(x)", "run(x, 1)")) == []


def test_a_name_that_only_a_type_checker_sees() -> None:
    before = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import T\n\n\ndef f(x: 'T'):\n    return x\n"
    )
    assert found(before, before.replace("return x", "return isinstance(x, T)")) == [
        (7, "`T` is used whether or not TYPE_CHECKING, which alone binds it")
    ]


def test_added_lines() -> None:
    assert added_lines(b"a\nb\nc\n", b"a\nx\nc\nd\n") == {2, 4}
    assert added_lines(None, b"a\nb\n") == {1, 2}
    assert added_lines(b"a\r\nb\r\n", b"b\r\n") == frozenset()


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(FindingsError, match=r"^a/x.py:1: with the patch it is no Python that can be read"):
        found("", "def f(\n")
