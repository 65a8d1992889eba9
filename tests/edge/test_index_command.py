"""`index` and `search`: ten images in a registry on loopback, with the manifests that plans of this checkout have."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import time
import tracemalloc
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from storing_registry import StoringRegistry
from stub_registry import sha

from cannery import cli
from cannery.commands import index as module
from cannery.context import read_context
from cannery.engine.oci import MalformedError
from cannery.errors import ExitCode
from cannery.pipeline import planned
from cannery.plan.manifest import manifest_text
from cannery.recipe.recipe import Options
from cannery.ship.io.index import MAX_TAR, contents_in
from cannery.verify.proof import UNPROVED, Proof

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
PROFILES = ("verl-vllm", "verl-npu", "verl-sglang", "verl-qwen3.5", "quickstart")
CHIPS = ("910b", "a3")
OCI = "application/vnd.oci.image.manifest.v1+json"
LOWER = b"the base and wheels, which nobody reads" * 1000


def last_layer(text: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        about = tarfile.TarInfo("opt/cannery/manifest.json")
        about.size = len(text.encode())
        tar.addfile(about, io.BytesIO(text.encode()))
    return gzip.compress(stream.getvalue())


def publish(registry: StoringRegistry, repository: str, tags: list[str], layer: bytes, arch: str = "arm64") -> bytes:
    config = json.dumps({"architecture": arch, "os": "linux", "of": tags}).encode()
    for blob in (config, layer, LOWER):
        registry.blobs[repository, sha(blob)] = blob
    body = json.dumps(
        {
            "schemaVersion": 2,
            "config": {"digest": sha(config), "size": len(config)},
            "layers": [{"digest": sha(one), "size": len(one)} for one in (LOWER, layer)],
        }
    ).encode()
    for name in (*tags, sha(body)):
        registry.manifests[repository, name] = (OCI, body)
    return body


@pytest.fixture(scope="module")
def manifests() -> dict[tuple[str, str], tuple[list[str], str, str]]:
    """{profile and chip: tags, plan, manifest} of plans as they are in this checkout."""
    context = read_context(ROOT)
    catalog = context.catalog()
    found = {}
    for profile in PROFILES:
        for chip in CHIPS:
            plan = planned(context, profile, Options(arch="arm64", chip=chip), catalog=catalog).plan
            tags = [name.partition(":")[2] for name in plan.references]
            found[profile, chip] = (tags, plan.digest, manifest_text(plan, catalog.compatibility))
    return found


@pytest.fixture
def registry(manifests: dict[tuple[str, str], tuple[list[str], str, str]]) -> Iterator[StoringRegistry]:
    with StoringRegistry() as found:
        for (profile, _), (tags, _, text) in manifests.items():
            publish(found, f"team/{profile}", tags, last_layer(text))
        yield found


@pytest.fixture
def build(capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(words, ROOT)
        text = capsys.readouterr()
        assert "Traceback" not in text.err
        assert "defect" not in text.err
        return code, text.out, text.err

    return run


def images(build: Any, *words: str) -> list[dict[str, Any]]:  # noqa: ANN401
    code, out, _ = build(*words, "--json")
    assert code == ExitCode.DONE
    return list(json.loads(out))


def profile_of(one: dict[str, Any]) -> str:
    return str(one["reference"].rpartition("/")[2].partition(":")[0])


def test_an_index_of_ten_images(build: Any, registry: StoringRegistry, tmp_path: Path) -> None:  # noqa: ANN401
    place, folder = f"{registry.host}/team", tmp_path / "made" / "index"
    begun = time.monotonic()
    code, out, err = build("index", "--registry", place, "--output", str(folder))
    assert (code, err) == (ExitCode.DONE, "")
    assert out.split() == [f"{folder}/index.json", f"{folder}/index.html"]
    value = json.loads((folder / "index.json").read_text())
    assert len(value) == 10
    assert not any(sha(LOWER) in line for line in registry.seen), "no image is pulled"
    assert time.monotonic() - begun < 60
    one = next(one for one in value if profile_of(one) == "verl-vllm" and one["target"]["chip"] == "a3")
    assert one["target"] == {"cann": "9.1.0", "chip": "a3", "os": "ubuntu22.04", "python": "3.12"}
    assert one["reference"].endswith(f"-{one['plan']}")
    assert (one["packages"]["vllm"], one["base"], one["verify"]) == ("0.23.0", "real", UNPROVED)
    assert one["sizes"]["arm64"] > len(LOWER)
    page = (folder / "index.html").read_text()
    assert all(image["reference"] in page and image["digest"] in page for image in value)
    for word in ("src=", "href=", "url(", "@import"):
        assert word not in page, "the page needs no other file"
    assert 'id="search"' in page
    assert len(page) < 1_000_000


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["vllm>=0.20", "--chip", "a3"], {("verl-vllm", "a3")}),
        (["vllm>=0.20"], {("verl-vllm", "a3"), ("verl-vllm", "910b")}),
        (["vLLM>=0.10,<0.12", "torch==2.7.1", "--chip", "910b"], {("verl-npu", "910b")}),
        (["sglang"], {("verl-sglang", "910b"), ("verl-sglang", "a3")}),
        (["torch_npu", "--python", "3.12", "--chip", "910b", "--arch", "arm64"], {("verl-vllm", "910b")}),
        (["torch", "--cann", "9.1", "--chip", "910b"], None),
        (["vllm>=0.20", "--arch", "amd64"], set()),
        (["vllm>=9"], set()),
        (["nobody"], set()),
    ],
)
def test_search(
    build: Any,  # noqa: ANN401
    registry: StoringRegistry,
    tmp_path: Path,
    words: list[str],
    found: set[tuple[str, str]] | None,
) -> None:
    place = f"{registry.host}/team"
    if found is None:  # no CANN version
        assert build("search", *words, "--registry", place)[0] == ExitCode.USAGE
        return
    seen = images(build, "search", *words, "--registry", place)
    assert {(profile_of(one), one["target"]["chip"]) for one in seen} == found
    (tmp_path / "i.json").write_text(json.dumps(images(build, "index", "--registry", place)))
    registry.seen.clear()
    assert images(build, "search", *words, "--index", str(tmp_path / "i.json")) == seen
    assert registry.seen == []
    code, out, err = build("search", *words, "--index", str(tmp_path / "i.json"))
    assert (code, len(out.splitlines())) == (ExitCode.DONE, len(found))
    assert f"{len(found)} of 10 images" in err
    assert all(one["reference"] in out for one in seen)


def test_what_a_proof_says_is_in_it(
    build: Any,  # noqa: ANN401
    registry: StoringRegistry,
    manifests: dict[tuple[str, str], tuple[list[str], str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = {
        "date": "2026-11-29",
        "profile": "verl-npu",
        "target": {"cann": "8.3.rc1", "chip": "a3", "os": "ubuntu22.04", "python": "3.11", "arch": "arm64"},
        "plan": manifests["verl-npu", "a3"][1],
        "image": f"sha256:{'0' * 64}",
        "driver": "25.2.0",
        "result": "passed",
        "checks": [{"id": "npu.tensor", "status": "passed", "seconds": 1}],
    }
    proof = Proof.model_validate(value)
    monkeypatch.setattr(module, "proofs_of", lambda _, name: [proof] if name == "verl-npu" else [])
    seen = images(build, "index", "verl-npu", "--registry", f"{registry.host}/team")
    assert {one["target"]["chip"]: one["verify"] for one in seen} == {"a3": proof.words, "910b": UNPROVED}


def test_what_is_no_image_of_ours_is_left_out_by_name(build: Any, registry: StoringRegistry) -> None:  # noqa: ANN401
    target = "8.5.0-910b-ubuntu22.04-py3.11"
    for digit, layer in enumerate([b"no gzip", last_layer("{"), last_layer("[]"), last_layer('{"wheels": 1}')]):
        publish(registry, "team/quickstart", [f"{target}-{digit}{'0' * 11}"], layer)
    publish(registry, "team/quickstart", ["latest"], b"x")
    registry.manifests["team/quickstart", f"{target}-{'9' * 12}"] = (OCI, b"{")
    code, out, err = build("index", "quickstart", "--registry", f"{registry.host}/team", "--json")
    assert code == ExitCode.DONE
    assert len(json.loads(out)) == 2
    assert err.count("is left out") == 5
    assert err.count("1 tags of other kinds left out") == 1


def test_tags_that_are_no_full_ones(build: Any, registry: StoringRegistry) -> None:  # noqa: ANN401
    full = f"8.5.0-910b-ubuntu22.04-py3.11-{'1' * 12}"
    own = [f"{full}-unverified", f"{full}-partial", f"{full}-standin-unverified-arm64", f"{full}-amd64"]
    own += [f"sha256-{'1' * 64}{end}" for end in ("", ".sig", ".att")]
    publish(registry, "team/quickstart", own, b"x")
    words = ("index", "quickstart", "--registry", f"{registry.host}/team", "--json")
    assert build(*words)[2] == ""
    publish(registry, "team/quickstart", [f"build-{number}" for number in range(300)], b"x")
    code, out, err = build(*words)
    assert (code, len(json.loads(out)), len(err.splitlines())) == (ExitCode.DONE, 2, 1)
    assert "300 tags of other kinds" in err


def odd_layer(kind: str, size: int = 0) -> bytes:
    """A tar with one member at the manifest's place, of a kind and size as its header has them."""
    about = tarfile.TarInfo("opt/cannery/manifest.json")
    about.type, about.linkname, about.size = kind.encode(), "manifest.json", size
    return about.tobuf(tarfile.GNU_FORMAT) + bytes(10240)


DEEP = last_layer("[" * 200_000)
ODD = {
    "xz": lzma.compress(gzip.decompress(DEEP))[:-9],
    "deflate": DEEP[:10] + b"\xff" * 100,
    "cut": DEEP[:-20],
    "deep": DEEP,
    "a link to itself": odd_layer("2"),
    "a size below nothing": odd_layer("0", -1024),
    "half a pair": last_layer(
        r'{"wheels": [{"name": "\ud800", "version": "\ud800"}], "sources": [], "base": {"kind": "x"}}'
    ),
    "a number": last_layer('{"wheels": [{"name": "x", "version": 1}], "sources": [], "base": {"kind": "real"}}'),
}


@pytest.mark.parametrize("name", ODD)
def test_one_odd_image_is_a_note(build: Any, registry: StoringRegistry, name: str) -> None:  # noqa: ANN401
    publish(registry, "team/quickstart", [f"8.5.0-910b-ubuntu22.04-py3.11-{'1' * 12}"], ODD[name])
    code, out, err = build("index", "quickstart", "--registry", f"{registry.host}/team", "--json")
    assert (code, len(json.loads(out))) == (ExitCode.DONE, 2)
    assert (err.count("is left out"), len(err.splitlines())) == (1, 1)


def test_a_layer_that_unpacks_to_gigabytes() -> None:
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(512)) + squeeze.flush()
    sparse = tarfile.TarInfo("opt/cannery/manifest.json")
    sparse.pax_headers = {"GNU.sparse.size": str(1 << 29), "GNU.sparse.map": "0,0"}
    for layer in (bomb, sparse.tobuf(tarfile.PAX_FORMAT) + bytes(1024)):
        tracemalloc.start()
        with pytest.raises(MalformedError, match="last layer"):
            contents_in(layer)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 5 * MAX_TAR


@pytest.mark.parametrize("size", [10**400, 2**63, -5, True])
def test_sizes_that_cannot_be(build: Any, registry: StoringRegistry, tmp_path: Path, size: int) -> None:  # noqa: ANN401
    place = ("--registry", f"{registry.host}/team")
    tag = f"8.5.0-910b-ubuntu22.04-py3.11-{'1' * 12}"
    value = json.loads(publish(registry, "team/quickstart", [tag], last_layer("{}")))
    value["layers"][0]["size"] = size
    registry.manifests["team/quickstart", tag] = (OCI, json.dumps(value).encode())
    code, out, err = build("index", "quickstart", *place, "--json")
    assert (code, len(json.loads(out)), err.count("is left out")) == (ExitCode.DONE, 2, 1)
    value = json.loads(out)
    value[0]["sizes"]["arm64"] = size
    (tmp_path / "i.json").write_text(json.dumps(value))
    assert build("search", "torch", "--index", str(tmp_path / "i.json"))[0] == ExitCode.USAGE


def test_a_link_to_the_next_page_that_is_no_url(
    build: Any,  # noqa: ANN401
    registry: StoringRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = StoringRegistry._send

    def linked(self: Any, request: Any, status: int, headers: Any = None, data: bytes = b"") -> None:  # noqa: ANN401
        send(self, request, status, {**(headers or {}), "Link": '<http://[::1>; rel="next"'}, data)

    monkeypatch.setattr(StoringRegistry, "_send", linked)
    code, _, err = build("index", "quickstart", "--registry", f"{registry.host}/team")
    assert code == ExitCode.NETWORK
    assert "no URL" in err


def test_two_architectures_are_one_image(build: Any, registry: StoringRegistry) -> None:  # noqa: ANN401
    tag, text = f"8.5.0-910b-ubuntu22.04-py3.11-{'1' * 12}", '{"wheels": [], "sources": [], "base": {"kind": "real"}}'
    entries = []
    for arch in ("amd64", "arm64"):
        body = publish(registry, "team/quickstart", [], last_layer(text + " " * len(entries)), arch)
        entries.append({"digest": sha(body), "size": len(body), "platform": {"os": "linux", "architecture": arch}})
    value = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    registry.manifests["team/quickstart", tag] = ("application/vnd.oci.image.index.v1+json", value)
    seen = images(build, "index", "quickstart", "--registry", f"{registry.host}/team")
    (one,) = (one for one in seen if one["plan"] == "1" * 12)
    assert one["sizes"].keys() == {"amd64", "arm64"}
    assert one["digest"] == sha(value)


def test_wrong_use(build: Any, registry: StoringRegistry, tmp_path: Path) -> None:  # noqa: ANN401
    place = ("--registry", f"{registry.host}/team")
    assert build("index")[0] == ExitCode.USAGE
    assert build("index", "../..", *place)[0] == ExitCode.USAGE
    assert build("search", ">=1", *place)[0] == ExitCode.USAGE
    assert build("search", "torch", "--chip", "x", *place)[0] == ExitCode.USAGE
    for text in ("torch @ https://a.example/x.whl", "torch[x]", "torch; python_version > '3'"):
        assert build("search", text, *place)[0] == ExitCode.USAGE
    (tmp_path / "i.json").write_text("[]")
    assert build("search", "torch", "--index", str(tmp_path / "i.json"))[0] == ExitCode.DONE
    assert build("search", "torch", "--index", str(tmp_path / "i.json"), *place)[0] == ExitCode.USAGE
    for text in ("", "{", "[1]", "{}", '[{"reference": 1}]'):
        (tmp_path / "i.json").write_text(text)
        assert build("search", "torch", "--index", str(tmp_path / "i.json"))[0] == ExitCode.USAGE
    assert build("search", "torch", "--index", str(tmp_path / "none"))[0] == ExitCode.USAGE


def test_a_registry_that_refuses_or_has_nothing(build: Any, registry: StoringRegistry) -> None:  # noqa: ANN401
    assert images(build, "index", "--registry", f"{registry.host}/nobody") == []
    registry.login = "me:s3cret"
    code, _, err = build("index", "--registry", f"{registry.host}/team")
    assert code == ExitCode.NETWORK
    assert "docker login" in err
