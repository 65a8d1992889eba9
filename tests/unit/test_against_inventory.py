"""What is in an image, by the files that were read: Python, packages, CANN, manifest."""

from __future__ import annotations

from seen_images import CANN, ENV, HOME, SITE, STACK, bases, metadata, origin, seen, system

from cannery.against.image import Files, Image, read_facts

HASH = "0123456789abcdef0123456789abcdef01234567"


def inventory(one: Files) -> Image:
    return read_facts(one, bases().bases)


def test_links_are_followed_as_the_image_would() -> None:
    one = Files("amd64", links={"/a": "b/c", "/b": "/d", "/d/c": "../e", "/x": "y", "/y": "x"})
    assert one.real("/a/file") == "/e/file"
    assert one.real("/plain/file") == "/plain/file"
    assert one.real("/x/file") == "/x/file"  # a circle


def test_the_stack_of_a_plain_image() -> None:
    found = inventory(seen())
    assert (found.os, found.toolkit, found.manifest) == ("ubuntu22.04", "8.5.0", None)
    assert (found.python.prefix, found.python.version) == (HOME, "3.11")
    assert {name: one.version for name, one in found.packages.items()} == {
        name.replace("_", "-"): version for name, version in STACK.items()
    }


def test_an_empty_image() -> None:
    found = inventory(Files("amd64"))
    assert (found.os, found.toolkit, found.python.version, found.packages) == ("", "", "", {})


def test_the_python_with_torch_npu_is_the_images_python() -> None:
    other = metadata({"pip": "24.0", "torch": "2.1.0"}, "/opt/conda/lib/python3.10/site-packages")
    found = inventory(seen(texts=other, env={**ENV, "PATH": f"/opt/conda/bin:{ENV['PATH']}"})).python
    assert (found.prefix, found.version) == (HOME, "3.11")


def test_without_torch_the_first_python_on_path_is() -> None:
    texts = {
        **metadata({"a": "1", "b": "1"}, "/opt/big/lib/python3.9/site-packages"),
        **metadata({"a": "2"}, "/opt/v/lib/python3.10/site-packages"),
    }
    found = inventory(Files("amd64", env={"PATH": "/opt/v/bin:/opt/big/bin"}, texts=texts))
    assert found.python.version == "3.10"


def test_a_venv_has_the_packages_of_its_base_only_when_its_config_allows_it() -> None:
    venv = "/opt/v/lib/python3.11/site-packages"
    texts = {**metadata({"torch": "2.9.0", "torch_npu": "2.9.0"}, venv), **metadata({"torch": "2.8.0", "ray": "2.0"})}
    closed = f"home = {HOME}/bin\ninclude-system-site-packages = false\n"
    found = inventory(Files("amd64", texts={**texts, "/opt/v/pyvenv.cfg": closed}))
    assert (found.python.prefix, sorted(found.packages)) == ("/opt/v", ["torch", "torch-npu"])
    opened = inventory(Files("amd64", texts={**texts, "/opt/v/pyvenv.cfg": closed.replace("false", "true")}))
    assert {name: one.version for name, one in opened.packages.items()} == {
        "ray": "2.0",
        "torch": "2.9.0",
        "torch-npu": "2.9.0",
    }


def test_a_users_own_packages_hide_the_interpreters() -> None:
    texts = metadata({"ray": "1.0"}, "/root/.local/lib/python3.11/site-packages")
    found = inventory(seen(texts={**seen().texts, **texts})).packages
    assert (found["ray"].version, found["torch"].version) == ("1.0", "2.9.0+cpu")


def test_debians_two_folders_are_one_python() -> None:
    texts = {
        **metadata({"torch": "2.9.0", "six": "2"}, "/usr/local/lib/python3.10/dist-packages"),
        **metadata({"six": "1", "apt": "3"}, "/usr/lib/python3/dist-packages"),
    }
    found = inventory(Files("amd64", texts=texts))
    assert {name: one.version for name, one in found.packages.items()} == {"torch": "2.9.0", "six": "2", "apt": "3"}
    assert found.python.version == "3.10"


def test_the_commit_of_a_distribution() -> None:
    texts = {
        **metadata({"verl": "0.5", "vllm": "0.10.0+g01234567.empty", "mindspeed": "0.12.1"}),
        **origin("verl", "0.5", url="https://git.example/verl", vcs_info={"vcs": "git", "commit_id": HASH}),
        **origin("mindspeed", "0.12.1", url="file:///work%20s/MindSpeed", dir_info={"editable": True}),
    }
    found = inventory(Files("amd64", texts=texts)).packages
    assert {name: one.commit for name, one in found.items()} == {"verl": HASH, "vllm": "01234567", "mindspeed": ""}


def test_a_broken_direct_url_has_no_commit() -> None:
    for text in ("", "[]", "{", '{"url": 1, "vcs_info": []}', '{"url": "file:///x", "vcs_info": null}'):
        texts = {**metadata({"verl": "0.5"}), f"{SITE}/verl-0.5.dist-info/direct_url.json": text}
        assert inventory(Files("amd64", texts=texts)).packages["verl"].commit == "", text


def test_a_develop_install_has_its_metadata_in_the_tree() -> None:
    texts = {
        **metadata(STACK),
        f"{SITE}/verl-npu.egg-link": "/src/verl_npu\n.",
        "/src/verl_npu/verl_npu.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: verl-npu\nVersion: 0.0.1\n",
        f"{SITE}/old-1.0.egg-info": "Metadata-Version: 1.0\nName: Old\nVersion: 1.0\n",
        f"{SITE}/gone.egg-link": "/src/gone\n.",
    }
    found = inventory(Files("amd64", texts=texts)).packages
    assert [found[name].version for name in ("verl-npu", "old", "gone")] == ["0.0.1", "1.0", ""]


def test_the_requirements_of_a_distribution() -> None:
    text = "Name: a\nVersion: 1\nRequires-Dist: torch (==2.8.0)\nRequires-Dist: x; extra == 'y'\n\nRequires-Dist: no\n"
    found = inventory(Files("amd64", texts={f"{SITE}/a-1.dist-info/METADATA": text})).packages["a"]
    assert found.requires == ("torch (==2.8.0)", "x; extra == 'y'")


def test_of_two_canns_the_one_in_use() -> None:
    both = {**system("8.5.0"), **system("8.3.rc1")}
    older = seen(
        texts=both,
        env={**ENV, "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/now"},
        links={"/usr/local/Ascend/now": "cann-8.3.rc1"},
    )
    found = inventory(older)
    assert found.toolkit == "8.3.rc1"
    assert inventory(seen(texts=both)).toolkit == "8.5.0"


def test_a_version_with_a_build_is_the_version() -> None:
    path = f"{CANN}/x86_64-linux/install.info"
    assert inventory(seen(texts={path: "version=8.5.0.B160\n"})).toolkit == "8.5.0"


def test_a_toolkit_that_no_base_knows() -> None:
    path = "/usr/local/Ascend/ascend-toolkit/8.9.9/aarch64-linux/ascend_toolkit_install.info"
    assert inventory(Files("arm64", texts={path: "version=8.9.RC1\n"})).toolkit == "8.9.rc1"


def test_a_manifest_that_somebody_edited_is_none() -> None:
    good = (
        '{"schema": 1, "profile": "stack", "plan": "0123", "target": {"cann": "8.5.0"}, "sources": [], "patches": []}'
    )
    path = "/opt/cannery/manifest.json"
    found = inventory(seen(texts={path: good})).manifest
    assert found is not None
    assert found["profile"] == "stack"
    for bad in (
        good.replace("1,", "2,", 1),
        good.replace('"0123"', "5"),
        good.replace('"sources": []', '"sources": [1]'),
        "[]",
        "{",
    ):
        assert inventory(seen(texts={path: bad})).manifest is None, bad
