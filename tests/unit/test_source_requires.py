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
[project.optional-dependencies]
common = ["torch==2.6.0"]
npu = ["my-project[common]", "attrs"]
loop = ["my_project[loop,common]", "six"]
"""


def found(files: dict[str, str], *places: str) -> tuple[str, ...]:
    """What is found in files that can be read whole."""
    comparison = compare((), files, places)
    assert comparison.unread == ()
    return comparison.found


def unread(text: str, place: str = "setup.py") -> str:
    comparison = compare((), {place.partition(":")[0]: text}, (place,))
    assert comparison.found == ()
    assert not comparison.is_same
    (sentence,) = comparison.unread
    return sentence


def test_the_same_in_other_words_is_the_same() -> None:
    known = ["Compressed_Tensors>=0.11.0", "transformers>=4.57.4,<5", "ray[default,air]>=2.41.0", "numpy<2.0.0"]
    text = "compressed-tensors >=0.11\ntransformers <5 , >=4.57.4\nRay[AIR,default]>=2.41.0  # why\nnumpy<2\n"
    comparison = compare(known, {"requirements.txt": text}, ("requirements.txt",))
    assert comparison.is_same
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
    assert not comparison.is_same
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
    assert compare(["x<3,>=1", *found(files, "a.txt", "b.txt")[1:]], files, ("a.txt", "b.txt")).is_same
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


def test_pyproject_gives_dependencies_extras_and_what_a_build_wants() -> None:
    files = {"sub/pyproject.toml": PYPROJECT}
    assert found(files, "sub/pyproject.toml") == ("numpy<2", "ray[default]>=2.41")
    assert found(files, "sub/pyproject.toml:build-system") == ("setuptools>=61", "wheel")
    assert found(files, "sub/pyproject.toml:npu") == ("attrs", "torch==2.6.0")
    assert found(files, "sub/pyproject.toml:loop") == ("six", "torch==2.6.0")
    assert found(files, "sub/pyproject.toml", "sub/pyproject.toml:common")[2] == "torch==2.6.0"
    assert found({"pyproject.toml": '[project]\nname = "x"\n'}, "pyproject.toml") == ()


@pytest.mark.parametrize("listed", ['"need/a.txt"', '["need/a.txt", "b.txt"]'])
def test_pyproject_may_leave_them_to_files(listed: str) -> None:
    text = f'[project]\ndynamic = ["dependencies"]\n[tool.setuptools.dynamic]\ndependencies = {{file = {listed}}}\n'
    files = {"sub/pyproject.toml": text, "sub/need/a.txt": "six", "sub/b.txt": "attrs"}
    assert found(files, "sub/pyproject.toml") == (("attrs", "six") if "b.txt" in listed else ("six",))


@pytest.mark.parametrize(
    ("text", "what", "sentence"),
    [
        ("[build-system]", "", "has no [project]: what the tree asks for is in setup.py or setup.cfg"),
        ('[project]\ndynamic = ["dependencies"]', "", "leaves its dependencies to setup.py: name that file as a place"),
        ("[project]", ":npu", "has no optional dependencies npu"),
        ("[project", "", "is no TOML: Expected ']' at the end of a table declaration (at end of document)"),
    ],
)
def test_a_pyproject_that_says_too_little(text: str, what: str, sentence: str) -> None:
    assert unread(text, f"pyproject.toml{what}") == f"pyproject.toml {sentence}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("setup(name='x', install_requires=['six', 'attrs'])", "setup.py"),
        ("import setuptools\nsetuptools.setup(install_requires=('six', 'attrs'))", "setup.py:install_requires"),
        ("install_requires = ['six', 'attrs']\nsetup(install_requires=install_requires)", "setup.py"),
        ("NEED = ['six']\nNEED.append('attrs')\nsetup(install_requires=NEED)", "setup.py"),
        ("A = ['six']\nB: list = ['attrs']\nsetup(install_requires=[*A, *B])", "setup.py"),
        ("A = ['six']\nA += ['at' + 'trs']\nsetup(install_requires=A)", "setup.py"),
        ("A = ['x']\nA = ['six']\nB = A + ['attrs']\ndef main():\n    setup(install_requires=B)", "setup.py"),
        ("A = ['six']\nA.extend(['attrs'])\n", "setup.py:A"),
        ("install_requires = ['six', 'attrs']\nsetup(**more)", "setup.py"),
        ("with open('x') as f:\n    A = ['six', 'attrs']\nsetup(install_requires=A)", "setup.py"),
    ],
)
def test_a_setup_py_is_read_by_its_syntax(text: str, place: str) -> None:
    assert found({"setup.py": text}, place) == ("attrs", "six")


def test_a_setup_without_the_argument_asks_for_nothing() -> None:
    assert found({"setup.py": "from setuptools import setup\nsetup(name='x')"}, "setup.py") == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("setup(install_requires=read())", "line 1: read()"),
        (
            "A = open('need.txt').read().split()\nsetup(install_requires=A)",
            "line 1: open('need.txt').read().split(); it reads need.txt, which can be a place itself",
        ),
        ("A = ['six']\nif new:\n    A.append('attrs')\nsetup(install_requires=A)", "line 3: A.append('attrs')"),
        ("A = ['six']\nfor x in y:\n    A += [x]\nsetup(install_requires=A)", "line 3: A += [x]"),
        ("setup(install_requires=['six', x])", "line 1: x"),
        ("setup(install_requires='six')", "it is the text 'six'"),
    ],
)
def test_a_list_that_only_a_run_would_tell(text: str, why: str) -> None:
    told = "setup.py: install_requires is no list that can be read without running it: "
    assert unread(text) == told + why


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ("setup(**more)", "setup.py", "setup() is called with **, which may hold install_requires"),
        ("x = 1", "setup.py", "it has neither a list install_requires nor a call of setup()"),
        ("setup(install_requires=['six'])", "setup.py:NEED", "it has no list NEED"),
        ("def setup(:", "setup.py", "it is no Python: invalid syntax (<unknown>, line 1)"),
    ],
)
def test_a_setup_py_without_the_list(text: str, place: str, sentence: str) -> None:
    assert unread(text, place) == f"setup.py: {sentence}"


def test_a_place_that_is_not_in_the_tree_is_reported() -> None:
    comparison = compare(["six"], {}, ("setup.py", "requirements.txt"))
    assert comparison.unread == ("setup.py is not in the tree", "requirements.txt is not in the tree")
    assert [str(one) for one in comparison.differences] == ["six: known has six, the tree has nothing"]


def test_a_bad_known_requirement_is_the_callers() -> None:
    with pytest.raises(InvalidRequirement):
        compare(["six=="], {}, ())


def test_the_files_that_may_matter() -> None:
    names = ["setup.py", "a/setup.py", "pyproject.toml", "python/pyproject_other.toml", "requirements.txt"]
    names += ["requirements-npu.txt", "requirements/common.txt", "a/requirements/x/y.txt", "requirements.in"]
    others = ["setup.cfg", "verl/setup.pyc", "docs/require.txt", "mysetup.py", "a/b.toml"]
    assert [name for name in (*names, *others) if is_requirement_file(name)] == names
