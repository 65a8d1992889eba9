"""Fields of the catalog that reach a Dockerfile, a shell or a command line: what could be a command is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkouts import FROZEN
from factories import base_line, profile, standin
from pydantic import TypeAdapter, ValidationError

from cannery.catalog.addresses import HostUrl
from cannery.catalog.catalog import BaseLine, ChipAccess, Profile, StandIn
from cannery.catalog.component import Component
from cannery.catalog.errors import CatalogError, faults
from cannery.catalog.fields import RelativeText, RepositoryText
from cannery.catalog.io.read import load_catalog
from cannery.errors import UsageError
from cannery.recipe.environment import docker_quote

YamlValue = Any  # what YAML holds
IMAGES = Path(__file__).resolve().parent.parent.parent / "images"
WORDS = ("a;b", "a\nb", "-a", "$(x)", "../a", "", "a b", "`x`")
PATHS = (
    "/opt/a;b",
    "/opt/a\nb",
    "/opt/a\n",
    "-a",
    "/opt/$(x)",
    "/opt/../a",
    "../a",
    "",
    "/opt//a",
    "/opt/a/",
    "/opt/./a",
    "/opt/a b",
    "/opt/a=b",
)
LINES = ("a\nRUN b", "a\n", "a\rb", "")
SYSTEM = {"kind": "system", "summary": "x"}
TARGETS = {"apt": {"amd64": "/usr/lib/a.so", "arm64": "/usr/lib/a.so"}}
CHIP: dict[str, Any] = {"names": "A2", "cards": 8, "managers": ["/dev/davinci_manager"], "mounts": ["/usr/local/dcmi"]}
LINE = base_line().model_dump(mode="json")
STANDIN = standin().model_dump(mode="json", by_alias=True)
TAG = "8.5.0-910b-ubuntu22.04-py3.11"
VERSION_FILE = {"name": "toolkit", "path": "/usr/{machine}-linux/install.info", "line": "version={version}"}
PROFILE = profile().model_dump(mode="json", exclude_defaults=True)
NATIVE = {
    "kind": "native",
    "summary": "x",
    "hosts": {"h": "a/b"},
    "install": "wheel",
    "revisions": {"a" * 40: {"version": "1.0", "source": "its list"}},
}

# Model, the whole value, the place of the field in it, what is right, what is wrong.
# A place that ends in `KEY` is a key of the mapping there.
KEY = "<key>"
FIELDS: tuple[tuple[object, dict[str, Any], tuple[str | int, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (
        Component,
        {**SYSTEM, "system": {"apt": ["git"]}},
        ("system", "apt", 0),
        ("g++", "libstdc++6", "python3.11", "a2_b"),
        (*WORDS, "git-", "a=1.0", "a*", "/bin/a", "@g"),
    ),
    (Component, {**SYSTEM, "system": {"dnf": ["git"]}}, ("system", "dnf", 0), ("gcc-c++", "SDL2"), WORDS),
    (
        Component,
        {**SYSTEM, "links": {}},
        ("links", KEY),
        ("/opt/a", "/usr/local/lib/libj.so.2"),
        (*PATHS, "/opt", "/usr/local", "/opt/", "/etc/passwd", "/usr/local/../lib/a", "/optional/a", "/usr/lib/a"),
    ),
    (
        Component,
        {**SYSTEM, "links": {"/opt/a": {"apt": {"amd64": "/a"}}}},
        ("links", "/opt/a", "apt", "amd64"),
        ("/usr/lib64/libstdc++.so.6",),
        (*PATHS, "/"),
    ),
    (Component, {**SYSTEM, "libraries": ["/a"]}, ("libraries", 0), ("/opt/a/b.so",), PATHS),
    (Component, SYSTEM, ("summary",), ("it's $(x); fine",), LINES),
    (Component, {**NATIVE, "paths": ["a"]}, ("paths", 0), ("csrc", "a/-b"), WORDS),
    (Component, {**NATIVE, "subdirectory": "a"}, ("subdirectory",), ("python/kernels",), WORDS),
    (Component, {**NATIVE, "tree_links": {"a": "b"}}, ("tree_links", "a"), ("verl/examples",), WORDS),
    (Component, {"kind": "wheels", "summary": "x"}, ("index",), ("pytorch-cpu",), WORDS),
    (Component, {**NATIVE, "patch_sets": {"folder": "a", "repos": {}}}, ("patch_sets", "repos", KEY), ("verl",), WORDS),
    (Profile, PROFILE, ("summary",), ('"quotes" and $HOME; stay',), LINES),
    (
        ChipAccess,
        CHIP,
        ("managers", 0),
        ("/dev/hisi_hdc",),
        ("/dev", "/dev/a;b", "/dev/a\nb", "-a", "/dev/$(x)", "/dev/../a", "/etc/a", ""),
    ),
    (ChipAccess, CHIP, ("mounts", 0), ("/usr/local/Ascend/driver/lib64",), (*PATHS, "/opt/a:/b")),
    (ChipAccess, {**CHIP, "network": ["/a"]}, ("network", 0), ("/etc/hccn.conf",), PATHS),
    (ChipAccess, {**CHIP, "socs": ["a"]}, ("socs", 0), ("ascend910b4-1", "ascend910_9391"), WORDS),
    (ChipAccess, CHIP, ("resource",), ("huawei.com/Ascend910",), (*WORDS, "a/b;c", "a/$(x)", "-a/b")),
    (ChipAccess, CHIP, ("names",), ("Atlas 300I Duo, 300I Pro",), LINES),
    (BaseLine, LINE, ("toolkit_home",), ("/usr/local/Ascend/cann-8.5.0",), PATHS),
    (
        BaseLine,
        LINE,
        ("set_env", 0),
        ("/nnal/set_env.sh", "/nnal/set_env.sh --cxx_abi=${ATB_CXX_ABI:-1}", "/a.sh --a=${B} --c=1"),
        (*PATHS, *(f"/a.sh {word}" for word in ("", "-a", "a", "--a=$(x)", "--a=${B:-$(x)}", "--a=b;c", "--a=`x`"))),
    ),
    (
        BaseLine,
        LINE,
        ("env", "ubuntu22.04", 0),
        ('A="$(x); y"', "A="),
        ("A=a\nRUN b", "A=b\n", "-A=b", "A", "", "$(x)=a"),
    ),
    (BaseLine, LINE, ("tags", TAG, "python"), ("3.11.14",), (*WORDS, "3.11", "1!3.11.1", "3.11.1+a")),
    (BaseLine, {**LINE, "version_files": [VERSION_FILE]}, ("version_files", 0, "path"), ("/a/{machine}/b",), PATHS),
    (BaseLine, {**LINE, "version_files": [VERSION_FILE]}, ("version_files", 0, "line"), ("a : {version}",), LINES),
    (BaseLine, {**LINE, "version_files": [VERSION_FILE]}, ("version_files", 0, "name"), ("toolkit",), WORDS),
    (StandIn, STANDIN, ("suite",), ("bookworm", "stable-updates"), WORDS),
    (StandIn, STANDIN, ("packages", 0), ("python3.11", "g++"), (*WORDS, "a,b")),
    (StandIn, {**STANDIN, "folders": ["a"]}, ("folders", 0), ("lib64/plugin/nnengine",), WORDS),
    (StandIn, {**STANDIN, "leave_out": ["/a"]}, ("leave_out", 0), ("/usr/share/doc/*",), PATHS),
    (StandIn, {**STANDIN, "keep": ["/a"]}, ("keep", 0), ("/usr/share/doc/*/copyright",), PATHS),
    (StandIn, STANDIN, ("libraries", KEY), ("libhccl.so",), WORDS),
)
# What a key needs as its value.
VALUES = {"links": TARGETS, "repos": "verl", "libraries": {"prefixes": ["a"]}}


def changed(value: YamlValue, place: tuple[str | int, ...], new: str) -> YamlValue:
    """A copy of `value` with `new` at `place`."""
    head, *rest = place
    if rest == [KEY]:
        return {**value, head: {new: VALUES[str(head)]}}
    below = changed(value[head], tuple(rest), new) if rest else new
    if isinstance(value, dict):
        return {**value, head: below}
    return [below if position == head else item for position, item in enumerate(value)]


CASES = [(model, value, place, bad) for model, value, place, _, wrong in FIELDS for bad in wrong]
GOOD = [(model, value, place, good) for model, value, place, right, _ in FIELDS for good in right]


@pytest.mark.parametrize(("model", "value", "place", "bad"), CASES)
def test_what_could_be_a_command_is_refused(
    model: object, value: dict[str, Any], place: tuple[str | int, ...], bad: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_python(changed(value, place, bad))
    wanted = (*place[:-1], bad) if place[-1] == KEY else place
    assert wanted in [fault.path for fault in faults(caught.value, model)]


@pytest.mark.parametrize(("model", "value", "place", "good"), GOOD)
def test_what_is_used_is_taken(model: object, value: dict[str, Any], place: tuple[str | int, ...], good: str) -> None:
    assert TypeAdapter(model).validate_python(changed(value, place, good))


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        (HostUrl, "-oProxyCommand@h:{repository}"),
        (HostUrl, "git@-h:{repository}"),
        (HostUrl, "ssh://-oProxyCommand/{repository}"),
        (HostUrl, "ssh://-l@h/{repository}"),
        (HostUrl, "https://-h/{repository}"),
        (RepositoryText, "-a/b"),
        (RelativeText, "--exec"),
    ],
)
def test_no_address_is_an_option(field: object, bad: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(field).validate_python(bad)


# Of each kind of file one or more: field as the error has it, place, wrong value, what the error says is right.
FILES = (
    ("components/git.yaml", ("system", "apt", 0), "git; x", "system.apt.0: 'git; x' is not a system package, like"),
    ("components/patch.yaml", ("system", "dnf", 0), "-y", "system.dnf.0: '-y' is not a system package, like"),
    (
        "components/jemalloc.yaml",
        ("links", "/usr/local/lib/libjemalloc.so.2", "apt", "amd64"),
        "/usr/$(x)",
        "links./usr/local/lib/libjemalloc.so.2.apt.amd64: '/usr/$(x)' is not an absolute path of letters",
    ),
    ("profiles/quickstart.yaml", ("summary",), "a\nRUN x", "summary: 'a\\nRUN x' is not one line of text"),
    ("bases/8.5.0.yaml", ("set_env", 0), "/a; x", "set_env.0: '/a; x' is not a script's absolute path of letters"),
    ("bases/8.5.1.yaml", ("env", "ubuntu22.04", 0), "A=\nRUN x", "env.ubuntu22.04.0: 'A=\\nRUN x' is not an ENV line"),
    ("standin/recipe.yaml", ("packages", 0), "--x", "packages.0: '--x' is not a system package, like"),
    ("chips.yaml", ("910b", "managers", 0), "/etc/x", "910b.managers.0: '/etc/x' is not a path below /dev"),
)


def node_line(text: str, place: tuple[str | int, ...]) -> int:
    """The line on which the value at `place` is."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for part in place:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[part]
        else:
            node = next(value for key, value in node.value if key.value == part)
    return int(node.start_mark.line) + 1


def test_the_error_has_file_line_and_field(tmp_path: Path) -> None:
    images = Path(shutil.copytree(FROZEN, tmp_path / "images"))
    wanted = []
    for name, place, bad, says in FILES:
        text = yaml.safe_dump(changed(yaml.safe_load((images / name).read_text()), place, bad), sort_keys=False)
        (images / name).write_text(text)
        wanted.append((f"images/{name}:{node_line(text, place)}", says))
    with pytest.raises(CatalogError) as caught:  # chips.yaml and the stand-in's recipe are every profile's
        load_catalog(images)
    found = {(part.where or ""): part.what for part in caught.value.parts}
    assert sorted(found) == sorted(where for where, _ in wanted)
    for where, says in wanted:
        assert found[where].startswith(says)


def test_every_committed_file_is_taken() -> None:
    assert load_catalog(IMAGES).problems == ()


@pytest.mark.parametrize("value", ["a\nRUN b", "a\rb"])
def test_a_value_of_more_than_one_line_is_never_written(value: str) -> None:
    with pytest.raises(UsageError):
        docker_quote(value)
