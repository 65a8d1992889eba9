"""Edits that a plugin's setup.py would make: what they change, that they do it once, and what they refuse."""

from __future__ import annotations

import pytest

from cannery.catalog.component import Edit
from cannery.errors import BuildFailedError
from cannery.patches.io.patching import edited

INIT = b"import logging\n\nfrom .utils.device import is_npu_available\n\n__all__ = []\n"


def edit(**action: object) -> Edit:
    return Edit.model_validate(
        {"name": "an-edit", "component": "library", "file": "library/__init__.py", "reason": "a good reason", **action}
    )


IMPORT = edit(imports="plugin", when="is_npu_available")
COMMENT = edit(comments_out="from . import kernels")
TAKE = edit(takes_over=["apply", "check"])


def test_import_stands_at_the_end_and_once() -> None:
    once = edited(IMPORT, INIT)
    assert once == INIT + b"\n# Cannery: a good reason\nif is_npu_available:\n    import plugin\n"
    assert edited(IMPORT, once) == once
    by_hand = INIT + b"if is_npu_available:\n\timport plugin\n"
    assert edited(IMPORT, by_hand) == by_hand, "the fallback of the guide"
    assert edited(IMPORT, INIT.rstrip(b"\n")).startswith(INIT)


def test_import_wants_the_name_that_it_asks() -> None:
    with pytest.raises(BuildFailedError, match=r"library/__init__\.py has no is_npu_available to ask") as caught:
        edited(IMPORT, b"x = 1\n")
    assert "another commit of library" in caught.value.hint


def test_statement_is_commented_out_and_no_other() -> None:
    before = b"import torch\nfrom . import kernels\n\ndef use():\n    from . import kernels\n"
    once = edited(COMMENT, before)
    assert once == b"import torch\n# from . import kernels\n\ndef use():\n    from . import kernels\n"
    assert edited(COMMENT, once) == once
    with pytest.raises(BuildFailedError, match=r"has no line `from \. import kernels`"):
        edited(COMMENT, b"from . import others\n")


def test_functions_are_taken_over() -> None:
    before = b"import os\n\n@wrap\ndef apply():\n    return 1\n\ndef other():\n    pass\n\ndef check(): pass\n"
    once = edited(TAKE, before)
    assert once == (
        b"import os\n\nfrom .cannery_patches import apply  # Cannery: a good reason\n\ndef other():\n    pass\n\n"
        b"from .cannery_patches import check  # Cannery: a good reason\n"
    )
    assert edited(TAKE, once) == once
    with pytest.raises(BuildFailedError, match="has no function check"):
        edited(TAKE, b"def apply():\n    pass\n")


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(BuildFailedError, match="is not Python"):
        edited(IMPORT, b"def (\n")


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ({}, "an edit does one thing, this one 0"),
        ({"imports": "a", "when": "b", "comments_out": "c"}, "this one 2"),
        ({"imports": "a"}, "imports and when go together"),
    ],
)
def test_an_edit_does_one_thing(action: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        edit(**action)
