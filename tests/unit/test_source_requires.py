"""What a tree asks for, read from its files without running any, against what its component says."""

from __future__ import annotations

import pytest
from packaging.requirements import InvalidRequirement

from cannery.sources.requires import Difference, compare, is_requirement_file

PYPROJECT = """\
[build-system]
requires = ["setuptools>=61", "wheel"]
[project]
name = "My.Project"
dependencies = ["numpy<2", "ray[default]>=2.41"]
"""


def found(files: dict[str, str], *places: str) -> tuple[str, ...]:
    """What is found in files that can be read whole."""
    comparison = compare((), files, places)
    assert comparison.unread == ()
    return comparison.found


def unread(text: str, place: str = "setup.py") -> str:
    comparison = compare((), {place.partition(":")[0]: text}, (place,))
    assert comparison.found == ()
    (sentence,) = comparison.unread
    return sentence


def test_the_same_in_other_words_is_the_same() -> None:
    known = ["Compressed_Tensors>=0.11.0", "transformers>=4.57.4,<5", "ray[default,air]>=2.41.0", "numpy<2.0.0"]
    text = "compressed-tensors >=0.11\ntransformers <5 , >=4.57.4\nRay[AIR,default]>=2.41.0  # why\nnumpy<2\n"
    comparison = compare(known, {"requirements.txt": text}, ("requirements.txt",))
    assert (comparison.differences, comparison.unread) == ((), ())
    assert comparison.found == (
        "compressed-tensors>=0.11",
        "numpy<2",
        "ray[air,default]>=2.41.0",
        "transformers<5,>=4.57.4",
    )


def test_differences_name_both_sides() -> None:
    known = ["same", "only-known==1", "numpy<2", "torch", 'six; python_version > "3.11"', "ray[default]"]
    text = 'same\nonly.tree>=3\nnumpy<2.1\ntorch==2.7.1\nsix; python_version > "3.10"\nray\n'
    comparison = compare(known, {"r.txt": text}, ("r.txt",))
    assert comparison.differences == (
        Difference("numpy", "numpy<2", "numpy<2.1"),
        Difference("only-known", "only-known==1", "nothing"),
        Difference("only-tree", "nothing", "only-tree>=3"),
        Difference("ray", "ray[default]", "ray"),
        Difference("six", 'six; python_version > "3.11"', 'six; python_version > "3.10"'),
        Difference("torch", "torch", "torch==2.7.1"),
    )
    assert str(comparison.differences[0]) == "numpy: known has numpy<2, the tree has numpy<2.1"


def test_one_name_twice_asks_for_both_and_markers_stay_apart() -> None:
    files = {"a.txt": "x>=1\ny<2; sys_platform == 'linux'", "b.txt": "X<3\ny<3; sys_platform != 'linux'"}
    assert found(files, "a.txt", "b.txt") == ("x<3,>=1", 'y<2; sys_platform == "linux"', 'y<3; sys_platform != "linux"')
    assert compare(["x<3,>=1", *found(files, "a.txt", "b.txt")[1:]], files, ("a.txt", "b.txt")).differences == ()
    (difference,) = compare(["x<3,>=1", 'y<2; sys_platform == "linux"'], files, ("a.txt", "b.txt")).differences
    assert difference.tree == 'y<2; sys_platform == "linux" and y<3; sys_platform != "linux"'


def test_a_requirements_file_is_read_as_pip_reads_it() -> None:
    text = (
        "# a comment\n\n--extra-index-url https://host.invalid/simple\n-i https://host.invalid\n--pre\n-c limits.txt\n"
        "torch==2.7.1 --hash=sha256:aa \\\n    --hash=sha256:bb\nbase @ https://host.invalid/b.whl#sha256=00\n"
        "#--pre\nscipy ; python_version >= '3.9' # why\n-r sub/more.txt\r\n"
    )
    files = {
        "requirements.txt": text,
        "sub/more.txt": "--requirement=../common.txt\n",
        "common.txt": "-r common.txt\neinops",
    }
    assert found(files, "requirements.txt") == (
        "base @ https://host.invalid/b.whl#sha256=00",
        "einops",
        'scipy; python_version >= "3.9"',
        "torch==2.7.1",
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("-r other.txt", "r.txt includes other.txt, which is not in the tree"),
        ("-e ./sub", "r.txt: '-e ./sub' names no distribution"),
        ("git+https://host.invalid/x.git", "'git+https://host.invalid/x.git' names no distribution"),
    ],
)
def test_what_names_no_distribution_is_reported(text: str, sentence: str) -> None:
    assert unread(text, "r.txt") == sentence


def test_pyproject_gives_dependencies_and_what_a_build_wants() -> None:
    files = {"sub/pyproject.toml": PYPROJECT}
    assert found(files, "sub/pyproject.toml") == ("numpy<2", "ray[default]>=2.41")
    assert found(files, "sub/pyproject.toml:build-system") == ("setuptools>=61", "wheel")
    assert found({"pyproject.toml": '[project]\nname = "x"\n'}, "pyproject.toml") == ()


@pytest.mark.parametrize("listed", ['"need/a.txt"', '["need/a.txt", "b.txt"]'])
def test_pyproject_may_leave_them_to_files(listed: str) -> None:
    text = f'[project]\ndynamic = ["dependencies"]\n[tool.setuptools.dynamic]\ndependencies = {{file = {listed}}}\n'
    files = {"sub/pyproject.toml": text, "sub/need/a.txt": "six", "sub/b.txt": "attrs"}
    assert found(files, "sub/pyproject.toml") == (("attrs", "six") if "b.txt" in listed else ("six",))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[build-system]", "has no [project]: what the tree asks for is in setup.py or setup.cfg"),
        ('[project]\ndynamic = ["dependencies"]', "leaves its dependencies to setup.py: name that file as a place"),
        ("[project", "is not TOML: Expected ']' at the end of a table declaration (at end of document)"),
    ],
)
def test_a_pyproject_that_says_too_little(text: str, sentence: str) -> None:
    assert unread(text, "pyproject.toml") == f"pyproject.toml {sentence}"


@pytest.mark.parametrize(
    "text",
    [
        ("setup(name='x', install_requires=['six', 'attrs'])"),
        ("import setuptools\nsetuptools.setup(install_requires=('six', 'attrs'))"),
        ("install_requires = ['six', 'attrs']\nsetup(install_requires=install_requires)"),
        ("with open('x') as f:\n    A = ['six', 'attrs']\nsetup(install_requires=A)"),
    ],
)
def test_a_setup_py_is_read_by_its_syntax(text: str) -> None:
    assert found({"setup.py": text}, "setup.py") == ("attrs", "six")


def test_a_setup_without_the_argument_asks_for_nothing() -> None:
    assert found({"setup.py": "from setuptools import setup\nsetup(name='x')"}, "setup.py") == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("setup(install_requires=read())", 1),
        ("A = open('need.txt').read().split()\nsetup(install_requires=A)", 2),
        ("A = ['six']\nA += ['attrs']\nsetup(install_requires=A)", 3),
        ("A = ['six']\nA = ['attrs']\nsetup(install_requires=A)", 3),
        ("A = ['six']\nsetup(install_requires=A + ['attrs'])", 2),
        ("A = ['six']\nif new:\n    A.append('attrs')\nsetup(install_requires=A)", 4),
        ("A = ['six']\nfor x in y:\n    A += [x]\nsetup(install_requires=A)", 4),
        ("setup(install_requires=['six', x])", 1),
        ("setup(install_requires=['six', *x])", 1),
        ("setup(install_requires='six')", 1),
    ],
)
def test_a_list_that_only_a_run_would_give(text: str, line: int) -> None:
    assert unread(text).startswith(f"setup.py: line {line}: install_requires cannot be read without running it")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("setup(**more)", "setup() is called with **, which may hold install_requires"),
        ("x = 1", "it has no call of setup()"),
        ("def setup(:", "it is not Python: invalid syntax (<unknown>, line 1)"),
    ],
)
def test_a_setup_py_without_the_list(text: str, sentence: str) -> None:
    assert unread(text) == f"setup.py: {sentence}"


def test_a_place_that_is_not_in_the_tree_is_reported() -> None:
    comparison = compare(["six"], {}, ("setup.py", "requirements.txt"))
    assert comparison.unread == ("setup.py is not in the tree", "requirements.txt is not in the tree")
    assert [str(one) for one in comparison.differences] == ["six: known has six, the tree has nothing"]


def test_a_part_of_a_file_is_no_place() -> None:
    for place in ("setup.py:NEED", "pyproject.toml:npu"):
        assert unread("", place) == f"{place}: a file, or pyproject.toml:build-system, can be a place"


def test_a_bad_known_requirement_is_the_callers() -> None:
    with pytest.raises(InvalidRequirement):
        compare(["six=="], {}, ())


def test_the_files_that_may_matter() -> None:
    names = ["setup.py", "a/setup.py", "pyproject.toml", "python/pyproject_other.toml", "requirements.txt"]
    names += ["requirements-npu.txt", "requirements/common.txt", "a/requirements/x/y.txt", "requirements.in"]
    others = ["setup.cfg", "verl/setup.pyc", "docs/require.txt", "mysetup.py", "a/b.toml"]
    assert [name for name in (*names, *others) if is_requirement_file(name)] == names
