"""Documents attached to an image in a registry, by its API and by the fallback tag, and signatures by cosign."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from storing_registry import StoringRegistry
from test_store import LOWER, put, sha
from test_store_transfer import View

from cannery import cli
from cannery.commands import place as place_module
from cannery.commands import registry as registry_command
from cannery.context import read_context
from cannery.engine.io.find import NoEngineError
from cannery.engine.io.registry import Access, Login, Repository
from cannery.errors import ExitCode, NetworkError
from cannery.pipeline import planned
from cannery.plan.manifest import labels
from cannery.recipe.recipe import Options
from cannery.ship.io.referrers import attach, read_attached
from cannery.ship.published import EMPTY, INDEX_TYPE, Document, Kind
from cannery.store.io.store import Store
from cannery.store.io.transfer import Route, push
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [Document(Kind.CYCLONEDX, '{"bomFormat": "CycloneDX"}\n'), Document(Kind.PROVENANCE, '{"predicate": {}}')]
PLATFORM = {"os": "linux", "architecture": "amd64"}
ACCESS = Access(PipSettings(), lambda _: Login(), actions="pull,push")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoringRegistry]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with StoringRegistry() as found:
        yield found


@pytest.fixture
def image(registry: StoringRegistry, tmp_path: Path) -> dict[str, Any]:
    """The descriptor of an image of arm64 that is in the registry as team/demo:1."""
    store = Store(tmp_path / "images")
    put(store, LOWER)
    push(store, "demo:1", Route(name(registry), ACCESS, View(), print))
    with Repository(name(registry), ACCESS) as repository:
        entry = repository.published("1").entry("arm64")
        assert entry is not None
        return dict(entry.descriptor)


def name(registry: StoringRegistry) -> str:
    return f"{registry.host}/team/demo:1"


def test_a_registry_with_the_api_lists_them_itself(registry: StoringRegistry, image: dict[str, Any]) -> None:
    registry.api = 1  # one a page
    digests = attach(name(registry), ACCESS, image, DOCUMENTS)
    assert {tag for _, tag in registry.manifests if not tag.startswith("sha256:")} == {"1"}
    manifest = json.loads(registry.manifests["team/demo", digests[0]][1])
    assert manifest["subject"] == {key: image[key] for key in ("mediaType", "digest", "size")}
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["artifactType"] == manifest["layers"][0]["mediaType"] == "application/vnd.cyclonedx+json"
    assert manifest["config"] == {
        "mediaType": "application/vnd.oci.empty.v1+json",
        "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "size": 2,
    }
    registry.seen.clear()
    found, documents = read_attached(name(registry), ACCESS, "arm64", [Kind.PROVENANCE, Kind.CYCLONEDX, Kind.SPDX])
    assert documents == [DOCUMENTS[1], DOCUMENTS[0]]
    assert (found.digest, [one["digest"] for one in found.referrers]) == (image["digest"], digests)
    blobs = [line for line in registry.seen if "/blobs/" in line]
    config = json.loads(registry.manifests["team/demo", "1"][1])["config"]["digest"]
    assert len(blobs) == 3  # the two documents, and the configuration, which names the architecture
    assert any(config in line for line in blobs)


def test_in_any_other_they_are_listed_under_a_tag(registry: StoringRegistry, image: dict[str, Any]) -> None:
    tag = ("team/demo", "sha256-" + image["digest"].removeprefix("sha256:"))
    other = {"mediaType": "x", "digest": "sha256:" + "7" * 64, "size": 3, "artifactType": "application/other"}
    index = "application/vnd.oci.image.index.v1+json"
    registry.manifests[tag] = (index, json.dumps({"schemaVersion": 2, "manifests": [other]}).encode())
    digests = attach(name(registry), ACCESS, image, DOCUMENTS)
    media, body = registry.manifests[tag]
    listed = json.loads(body)
    assert (media, listed["mediaType"], listed["schemaVersion"]) == (index, index, 2)
    assert [one["digest"] for one in listed["manifests"]] == [other["digest"], *digests]
    assert [one["artifactType"] for one in listed["manifests"]][1:] == [str(one.kind) for one in DOCUMENTS]
    registry.seen.clear()
    assert attach(name(registry), ACCESS, image, DOCUMENTS) == digests
    assert registry.manifests[tag] == (media, body)
    assert registry.count("POST", "") == 0
    assert read_attached(name(registry), ACCESS, "arm64", [Kind.CYCLONEDX])[1] == [DOCUMENTS[0]]
    odd = [{"digest": "sha256:" + "8" * 64, "artifactType": kind} for kind in ([], {}, 1)]
    value = json.dumps({"manifests": [*odd, {"digest": other["digest"]}, *listed["manifests"]]})
    registry.manifests[tag] = (index, value.encode())
    found, documents = read_attached(name(registry), ACCESS, "arm64", [Kind.CYCLONEDX])
    assert (len(found.referrers), documents) == (4, [DOCUMENTS[0]])
    bare = json.dumps({"schemaVersion": 2, "config": {"digest": sha(b"{}")}, "layers": []}).encode()
    registry.manifests["team/demo", sha(bare)] = (index, bare)
    value = json.dumps({"manifests": [{"digest": sha(bare), "artifactType": Kind.CYCLONEDX}]})
    registry.manifests[tag] = (index, value.encode())
    with pytest.raises(NetworkError, match="has no layers"):
        read_attached(name(registry), ACCESS, "arm64", [Kind.CYCLONEDX])
    registry.manifests[tag] = (index, b"[]")
    with pytest.raises(NetworkError, match="list of referrers"):
        read_attached(name(registry), ACCESS, "arm64", [Kind.CYCLONEDX])


def test_a_registry_that_takes_no_oci_manifest_is_named(registry: StoringRegistry, image: dict[str, Any]) -> None:
    registry.refuses_oci = True
    with pytest.raises(NetworkError, match="MANIFEST_INVALID") as caught:
        attach(name(registry), ACCESS, image, DOCUMENTS)
    assert caught.value.code == ExitCode.NETWORK
    assert "the image is pushed" in caught.value.hint
    assert read_attached(name(registry), ACCESS, "arm64", [Kind.CYCLONEDX])[1] == []


def test_what_is_not_there_or_not_allowed(registry: StoringRegistry, image: dict[str, Any]) -> None:
    with pytest.raises(NetworkError, match="not for amd64"):
        read_attached(name(registry), ACCESS, "amd64", [Kind.SPDX])
    with pytest.raises(NetworkError, match="no such image"):
        read_attached(f"{registry.host}/team/none:1", ACCESS, "arm64", [Kind.SPDX])
    registry.login = "me:s3cret"
    with pytest.raises(NetworkError) as caught:
        read_attached(name(registry), ACCESS, "arm64", [Kind.SPDX])
    assert f"docker login {registry.host}" in caught.value.hint


# The commands.


@pytest.fixture
def pushed(registry: StoringRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an image as of quickstart into the store of a cache; return the folder for a program cosign."""

    def nobody(*_: object) -> None:
        raise NoEngineError("none")

    monkeypatch.setattr(place_module, "find_engine", nobody)
    monkeypatch.setattr(registry_command, "_proof", lambda *_: "")
    monkeypatch.setenv("CANNERY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:hush@mirror.example/simple")
    context = read_context(ROOT)
    plan = planned(context, "quickstart", Options(arch="amd64")).plan
    store = Store(context.cache / "images")
    made = store.add(io.BytesIO(LOWER))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": {**labels(plan), "org.cannery.version": "0.1.9"}},
        "rootfs": {"type": "layers", "diff_ids": [made.diff_id]},
    }
    store.put(json.dumps(config).encode(), plan.reference)
    return tmp_path


def fake_cosign(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> Path:
    program, said = folder / "bin/cosign", folder / "said"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >> {said}\necho -- >> {said}\n'
        f'while [ $# -gt 0 ]; do [ "$1" = --predicate ] && cat "$2" > {folder}/predicate; shift; done\n'
        f"echo made by cosign; exit {status}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return said


def run(*words: str) -> int:
    return cli.main([*words, "--arch", "amd64"], ROOT)


def test_a_push_attaches_and_sbom_reads_back(
    registry: StoringRegistry, pushed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("push", "quickstart", "--registry", f"{registry.host}/team", "--attach") == 0
    reference = capsys.readouterr().out.split()[1]
    assert run("sbom", "quickstart") == 0
    mine = capsys.readouterr().out
    assert run("sbom", reference) == 0
    assert capsys.readouterr().out == mine
    assert run("sbom", reference, "--format", "spdx") == 0
    assert json.loads(capsys.readouterr().out)["spdxVersion"] == "SPDX-2.3"
    assert run("sbom", reference, "--format", "provenance", "--output", str(pushed / "p.json")) == 0
    capsys.readouterr()
    text = (pushed / "p.json").read_text()
    value = json.loads(text)
    body = registry.manifests["team/quickstart", reference.rpartition(":")[2]][1]
    host, path = registry.host, "team/quickstart"
    digest = hashlib.sha256(body).hexdigest()
    assert value["subject"] == [{"name": f"{host}/{path}", "digest": {"sha256": digest}}]
    assert value["predicate"]["runDetails"]["builder"]["version"] == {"cannery": "0.1.9"}
    for secret in ("hush", "mirror.example", str(ROOT), str(pushed)):
        assert secret not in text
    assert run("report", reference) == ExitCode.USAGE
    assert "sbom" in capsys.readouterr().err
    capsys.readouterr()
    assert run("push", "quickstart", "--registry", f"{registry.host}/team", "--attach") == 0
    assert "nothing to push" in capsys.readouterr().err


def test_words_that_cannot_be(
    registry: StoringRegistry, pushed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", "/nothing")
    to = ("--registry", f"{registry.host}/team")
    assert run("push", "quickstart", *to, "--sign", "me.key") == ExitCode.UNABLE
    err = capsys.readouterr().err
    assert "cosign" in err
    assert "install it" in err
    assert not registry.manifests
    for words, part in (
        (("push", "quickstart", *to, "--sign", ""), "names no key"),
        (("push", "quickstart", *to, "--sign", "'"), "names no key"),
        (("image", "quickstart", "--attach"), "--push"),
        (("image", "quickstart", "--unverified"), "--push"),
        (("image", "quickstart", "--partial"), "--push"),
        (("sbom", "quickstart", "--format", "provenance"), "push --attach"),
    ):
        assert run(*words) == ExitCode.USAGE
        assert part in capsys.readouterr().err
    monkeypatch.setenv("PATH", path)
    for word in ("/x", "a//b:c"):
        assert run("sbom", word) == ExitCode.USAGE
        assert f"IMAGE: '{word}' is no" in capsys.readouterr().err
    assert run("push", "quickstart", *to) == 0
    reference = capsys.readouterr().out.split()[1]
    assert run("sbom", reference) == ExitCode.USAGE
    assert "push --attach" in capsys.readouterr().err


def test_cosign_signs_digests_and_attests_what_is_attached(
    registry: StoringRegistry, pushed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fake_cosign(pushed, monkeypatch)
    to = ("--registry", f"{registry.host}/team")
    assert run("push", "quickstart", *to, "--attach", "--json", "--sign", "env://KEY --tlog-upload=false") == 0
    value = json.loads(capsys.readouterr().out)
    image = f"{registry.host}/team/quickstart@{value['digest']}"
    calls = [one.split("\n")[:-1] for one in said.read_text().split("--\n")[:-1]]
    key = ["--yes", "--key", "env://KEY", "--tlog-upload=false"]
    assert calls[0] == ["sign", *key, image]
    kinds = ["cyclonedx", "spdxjson", "slsaprovenance1"]
    for call, kind in zip(calls[1:], kinds, strict=True):
        assert call[:-2] == ["attest", *key, "--type", kind, "--predicate"]
        assert call[-1] == image
        assert not Path(call[-2]).exists()
    predicate = json.loads((pushed / "predicate").read_text())
    assert set(predicate) == {"buildDefinition", "runDetails"}
    said.unlink()
    assert run("push", "quickstart", *to, "--sign", "keyless") == 0
    assert said.read_text().split() == ["sign", "--yes", image, "--"]
    fake_cosign(pushed, monkeypatch, status=3)
    capsys.readouterr()
    assert run("push", "quickstart", *to, "--sign", "keyless") == ExitCode.NETWORK
    assert "status 3; the image is pushed, but not signed" in capsys.readouterr().err
    program = pushed / "bin/cosign"
    program.write_text('#!/bin/sh\n[ "$1" = sign ]\n')
    assert run("push", "quickstart", *to, "--attach", "--sign", "keyless") == ExitCode.NETWORK
    assert "cosign attest ended with status 1; the image is pushed and signed" in capsys.readouterr().err


def test_an_image_of_an_index_has_documents_of_its_own(
    registry: StoringRegistry, pushed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tag has an index of two architectures, as two hosts push it."""
    said = fake_cosign(pushed, monkeypatch)
    to = ("--registry", f"{registry.host}/team")
    assert run("push", "quickstart", *to, "--json") == 0
    value = json.loads(capsys.readouterr().out)
    tag, mine = value["reference"].rpartition(":")[2], value["digest"]
    media, body = registry.manifests["team/quickstart", mine]
    entries = [
        {"mediaType": media, "digest": mine, "size": len(body), "platform": PLATFORM},
        {
            "mediaType": media,
            "digest": "sha256:" + "4" * 64,
            "size": 9,
            "platform": {"os": "linux", "architecture": "arm64"},
        },
    ]
    index = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    registry.manifests["team/quickstart", tag] = registry.manifests["team/quickstart", sha(index)] = (INDEX_TYPE, index)
    assert run("push", "quickstart", *to, "--attach", "--sign", "keyless") == 0
    assert ("team/quickstart", mine.replace(":", "-")) in registry.manifests
    name = f"{registry.host}/team/quickstart"
    calls = said.read_text().split("--\n")
    assert calls[0].split() == ["sign", "--yes", f"{name}@{sha(index)}", f"{name}@{mine}"]
    assert calls[1].split()[-1] == f"{name}@{mine}"
    capsys.readouterr()
    assert run("sbom", f"{name}:{tag}", "--format", "provenance") == 0
    assert json.loads(capsys.readouterr().out)["subject"][0]["digest"]["sha256"] == mine.removeprefix("sha256:")
    for words in (("--pin", "ray==2.58.0"), ("--base", "standin"), ("--src", f"verl-src={pushed}")):
        assert run("sbom", f"{name}:{tag}", *words) == ExitCode.USAGE
        assert "--arch alone" in capsys.readouterr().err


def test_the_empty_configuration_is_in_the_repository(registry: StoringRegistry, image: dict[str, Any]) -> None:
    (digest,) = attach(name(registry), ACCESS, image, DOCUMENTS[:1])
    config = json.loads(registry.manifests["team/demo", digest][1])["config"]["digest"]
    assert registry.blobs["team/demo", config] == EMPTY
