"""What is in an image, out of the files that were read: Pythons, git trees, CANN, what was left over."""

from __future__ import annotations

from seen_images import CANN, ENV, HOME, SITE, STACK, bases, git_tree, metadata, origin, seen, system

from cannery.against.facts import Inventory, take_inventory
from cannery.against.git_trees import GitTree, git_trees
from cannery.against.pythons import pythons
from cannery.against.seen import Seen

HASH = "0123456789abcdef0123456789abcdef01234567"


def inventory(one: Seen) -> Inventory:
    return take_inventory(one, bases().bases)


def test_links_are_followed_as_the_image_would() -> None:
    one = Seen("amd64", links={"/a": "b/c", "/b": "/d", "/d/c": "../e", "/x": "y", "/y": "x"})
    assert one.real("/a/file") == "/e/file"
    assert one.real("/plain/file") == "/plain/file"
    assert one.real("/x/file") == "/x/file"  # a circle


def test_the_stack_of_a_plain_image() -> None:
    found = inventory(seen())
    assert (found.os, found.toolkit, found.manifest) == ("ubuntu22.04", "8.5.0", None)
    assert (found.python.prefix, found.python.version) == (HOME, "3.11")
    assert {name: one.version for name, one in found.distributions.items()} == {
        name.replace("_", "-"): version for name, version in STACK.items()
    }
    assert found.leftovers == ()


def test_an_empty_image() -> None:
    found = inventory(Seen("amd64"))
    assert (found.os, found.toolkit, found.python.version, found.distributions) == ("", "", "", {})


def test_the_python_with_torch_npu_comes_first() -> None:
    other = metadata({"pip": "24.0", "torch": "2.1.0"}, "/opt/conda/lib/python3.10/site-packages")
    found = pythons(seen(texts=other, env={**ENV, "PATH": f"/opt/conda/bin:{ENV['PATH']}"}))
    assert [(one.prefix, one.version) for one in found] == [(HOME, "3.11"), ("/opt/conda", "3.10")]


def test_without_torch_the_first_on_path_does() -> None:
    texts = {
        **metadata({"a": "1", "b": "1"}, "/opt/big/lib/python3.9/site-packages"),
        **metadata({"a": "2"}, "/opt/v/lib/python3.10/site-packages"),
    }
    found = pythons(Seen("amd64", env={"PATH": "/opt/v/bin:/opt/big/bin"}, texts=texts))
    assert [one.version for one in found] == ["3.10", "3.9"]


def test_a_venv_sees_its_base_only_when_it_says_so() -> None:
    venv = "/opt/v/lib/python3.11/site-packages"
    texts = {**metadata({"torch": "2.9.0", "torch_npu": "2.9.0"}, venv), **metadata({"torch": "2.8.0", "ray": "2.0"})}
    closed = f"home = {HOME}/bin\ninclude-system-site-packages = false\n"
    found = pythons(Seen("amd64", texts={**texts, "/opt/v/pyvenv.cfg": closed}))[0]
    assert (found.prefix, sorted(found.distributions), found.shadowed) == ("/opt/v", ["torch", "torch-npu"], ())
    opened = pythons(Seen("amd64", texts={**texts, "/opt/v/pyvenv.cfg": closed.replace("false", "true")}))[0]
    assert sorted(opened.distributions) == ["ray", "torch", "torch-npu"]
    assert opened.distributions["torch"].version == "2.9.0"
    assert [(one.name, one.version) for one in opened.shadowed] == [("torch", "2.8.0")]


def test_a_users_own_packages_hide_the_interpreters() -> None:
    texts = metadata({"ray": "1.0"}, "/root/.local/lib/python3.11/site-packages")
    found = pythons(seen(texts=texts))[0]
    assert found.distributions["ray"].version == "1.0"
    assert [one.version for one in found.shadowed] == ["2.50.0"]


def test_debians_two_folders_are_one_python() -> None:
    texts = {
        **metadata({"torch": "2.9.0", "six": "2"}, "/usr/local/lib/python3.10/dist-packages"),
        **metadata({"six": "1", "apt": "3"}, "/usr/lib/python3/dist-packages"),
    }
    (found,) = pythons(Seen("amd64", texts=texts))
    assert (found.version, found.distributions["six"].version, found.distributions["apt"].version) == ("3.10", "2", "3")


def test_where_a_distribution_came_from() -> None:
    texts = {
        **metadata({"verl": "0.5", "vllm": "0.10.0+g01234567.empty", "mindspeed": "0.12.1"}),
        **origin("verl", "0.5", url="https://git.example/verl", vcs_info={"vcs": "git", "commit_id": HASH}),
        **origin("mindspeed", "0.12.1", url="file:///work%20s/MindSpeed", dir_info={"editable": True}),
    }
    found = inventory(Seen("amd64", texts=texts)).distributions
    assert (found["verl"].commit, found["verl"].tree, found["verl"].editable) == (HASH, "", False)
    assert found["vllm"].commit == "01234567"
    assert (found["mindspeed"].tree, found["mindspeed"].editable) == ("/work s/MindSpeed", True)


def test_a_broken_note_of_origin_is_none() -> None:
    for text in ("", "[]", "{", '{"url": 1, "vcs_info": []}', '{"url": "file:///x", "dir_info": null}'):
        texts = {**metadata({"verl": "0.5"}), f"{SITE}/verl-0.5.dist-info/direct_url.json": text}
        one = inventory(Seen("amd64", texts=texts)).distributions["verl"]
        assert (one.commit, one.tree, one.editable) == ("", "", False), text


def test_a_develop_install_names_its_tree() -> None:
    texts = {
        **metadata(STACK),
        f"{SITE}/verl-npu.egg-link": "/src/verl_npu\n.",
        "/src/verl_npu/verl_npu.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: verl-npu\nVersion: 0.0.1\n",
        f"{SITE}/old-1.0.egg-info": "Metadata-Version: 1.0\nName: Old\nVersion: 1.0\n",
    }
    found = inventory(Seen("amd64", texts=texts)).distributions
    assert (found["verl-npu"].version, found["verl-npu"].tree, found["verl-npu"].editable) == (
        "0.0.1",
        "/src/verl_npu",
        True,
    )
    assert found["old"].version == "1.0"


def test_heads_of_git_trees() -> None:
    texts = {
        **git_tree("/a", HASH, "https://user:secret@git.example:8080/volcengine/verl.git"),
        "/b/.git/HEAD": "ref: refs/heads/main\n",
        "/b/.git/refs/heads/main": f"{HASH}\n",
        "/b/.git/config": "[remote]\n url = git@git.example:Ascend/MindSpeed\n",
        "/c/.git/HEAD": "ref: refs/heads/dev\n",
        "/c/.git/packed-refs": f"# pack-refs\n{'f' * 40} refs/heads/development\n{HASH} refs/heads/dev\n^{'e' * 40}\n",
        "/c/sub/.git": "gitdir: ../.git/modules/sub\n",
        "/c/.git/modules/sub/HEAD": f"{'d' * 40}\n",
        "/e/.git/HEAD": "ref: refs/heads/none\n",
    }
    assert git_trees(Seen("amd64", texts=texts)) == (
        GitTree("/a", HASH, "volcengine/verl"),
        GitTree("/b", HASH, "Ascend/MindSpeed"),
        GitTree("/c", HASH, ""),
        GitTree("/c/sub", "d" * 40, ""),
        GitTree("/e", "", ""),
    )
    assert [tree.name for tree in git_trees(Seen("amd64", texts=texts))] == ["verl", "mindspeed", "c", "sub", "e"]


def test_of_two_canns_the_one_in_use() -> None:
    both = {**system("8.5.0"), **system("8.3.rc1")}
    older = seen(
        texts=both,
        env={**ENV, "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/now"},
        links={"/usr/local/Ascend/now": "cann-8.3.rc1"},
    )
    found = inventory(older)
    assert found.toolkit == "8.3.rc1"
    assert [(part.name, part.version) for part in found.cann] == [("toolkit", "8.3.rc1"), ("toolkit", "8.5.0")]
    assert inventory(seen(texts=both)).toolkit == "8.5.0"


def test_a_version_with_a_build_is_the_version() -> None:
    path = f"{CANN}/x86_64-linux/install.info"
    assert inventory(seen(texts={path: "version=8.5.0.B160\n"})).toolkit == "8.5.0"


def test_a_toolkit_that_no_base_knows() -> None:
    path = "/usr/local/Ascend/ascend-toolkit/8.9.9/aarch64-linux/ascend_toolkit_install.info"
    assert inventory(Seen("arm64", texts={path: "version=8.9.RC1\n"})).toolkit == "8.9.rc1"


def test_leftovers_are_named_without_their_values() -> None:
    one = seen(
        env={
            **ENV,
            "http_proxy": "http://u:secret@127.0.0.1:7333",
            "HTTPS_PROXY": "x",
            "no_proxy": "y",
            "ALL_PROXY": "",
        },
        history=("RUN |1 https_proxy=http://secret@p /bin/sh -c pip install x", "/bin/sh -c #(nop) CMD"),
        texts={"/root/.pip/pip.conf": "[global]\nindex-url = https://secret@i.example\ntrusted-host=i\n"},
        caches={"/root/.cache/pip": 2_400_000_000, "/var/lib/apt/lists": 40},
        present=frozenset({"/root/.netrc", "/x/y.patch", "/usr/lib/x86_64/libjemalloc.so.2"}),
    )
    found = [(left.what, left.where) for left in inventory(one).leftovers]
    assert found == [
        ("proxy settings in ENV: HTTPS_PROXY, http_proxy", "they hold in every container of it"),
        ("proxy settings in the history: https_proxy", "docker history shows them"),
        ("pip's settings index-url, trusted-host", "/root/.pip/pip.conf"),
        ("a cache of 2400 MB", "/root/.cache/pip"),
        ("a file that may hold secrets", "/root/.netrc"),
    ]
    assert "secret@" not in str(found)


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
