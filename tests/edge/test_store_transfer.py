"""Images between the store and a registry: each rung of the ladder, and what is left when one breaks."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from storing_registry import StoringRegistry
from test_pieces import kept
from test_store import LOWER, UPPER, config_of, flipped, put, sha, tar_of

from cannery.assemble.image import PYTHON_LABEL, part_references
from cannery.assemble.io.code import known_python
from cannery.commands import place
from cannery.commands.image import _measured, table
from cannery.engine.io.registry import Access, Login
from cannery.engine.io.transfer_view import TransferView
from cannery.engine.oci import AbsentError, DeniedError, MalformedError, OtherArchError, PassingError, RefusedError
from cannery.errors import ExitCode, FindingsError, NetworkError, UnableError
from cannery.host.io.place import StorePlace
from cannery.making import sharing
from cannery.making.image import Built
from cannery.plan import Layer, LayerKind
from cannery.ship.io.registry import Dock, move_alias, pull_image, push_image
from cannery.ship.published import LIST_TYPE
from cannery.store.describe import DOCKER, OCI
from cannery.store.io import transfer
from cannery.store.io.archive import write_oci
from cannery.store.io.store import Store
from cannery.store.io.transfer import Route, bring, fetch, push
from cannery.util.io.pip_settings import PipSettings
from cannery.util.io.waiting import WAITS
from tests.unit.factories import plan
from tests.unit.test_sink import LARGE as TEXT
from tests.unit.test_sink import packed_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cannery.engine.io.blobs import Content
    from cannery.engine.io.registry import Repository
    from cannery.pipeline import Work

LARGE = tar_of(("large", os.urandom(300_000)))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    return waits


@pytest.fixture
def registry() -> Iterator[StoringRegistry]:
    with StoringRegistry() as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "images")


class View(TransferView):
    """Keeps what it was shown last."""

    def __init__(self) -> None:
        self.last: tuple[int, ...] = ()

    def layers(self, done: int, count: int, moved: int = 0, size: int = 0) -> None:
        self.last = (done, count, moved, size)

    def moved(self, _count: int) -> None:
        raise AssertionError("an engine's bytes")


def route(registry: StoringRegistry, name: str = "team/demo:1", password: str = "s3cret") -> Route:
    login = Login({"username": "me", "password": password})
    access = Access(PipSettings(), lambda _: login, actions="pull,push", waits=(0.1, 0.2))
    return Route(f"{registry.host}/{name}", access, View(), print)


def all_done(found: Route, count: int) -> bool:
    """Whether so many blobs were shown, all of them as done, and all their bytes."""
    assert isinstance(found.view, View)
    done, of, moved, size = found.view.last
    return (done, of, moved) == (count, count, size)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "UPLOADS", 1)


@pytest.mark.usefixtures("one_by_one")
def test_a_push_sends_what_is_missing_and_then_the_manifest(store: Store, registry: StoringRegistry) -> None:
    registry.login = "me:s3cret"
    image = put(store, LOWER, UPPER)
    to = route(registry)
    push(store, "demo:1", to)
    media, body = registry.manifests["team/demo", "1"]
    manifest = json.loads(body)
    assert (media, manifest["mediaType"]) == (DOCKER.manifest, DOCKER.manifest)
    assert (manifest["config"]["digest"], manifest["config"]["mediaType"]) == (image, DOCKER.config)
    assert [gzip.decompress(registry.blobs["team/demo", one["digest"]]) for one in manifest["layers"]] == [LOWER, UPPER]
    assert all_done(to, 3)
    registry.seen.clear()
    again = route(registry)
    push(store, image, again)
    assert all_done(again, 3)
    assert [line.split()[0] for line in registry.seen if "manifests" not in line] == ["HEAD"] * 4  # one for the login


@pytest.mark.parametrize(("mounts", "sent"), [("yes", 1), ("no", 3), ("refused", 3)])
def test_layers_are_mounted_from_where_they_are(
    store: Store, registry: StoringRegistry, mounts: str, sent: int
) -> None:
    put(store, LOWER, UPPER)
    push(store, "demo:1", route(registry))
    registry.mounts = mounts
    registry.seen.clear()
    to = route(registry, "team/other:1")
    push(store, "demo:1", to)
    assert all_done(to, 3)
    assert registry.count("PATCH", "") == sent  # the configuration is new
    assert registry.count("POST", "mount=") == 2
    assert registry.count("POST", "uploads/") == {"yes": 3, "no": 3, "refused": 5}[mounts]
    assert ("team/other", "1") in registry.manifests
    layer = store.layer(sha(LOWER))
    assert layer is not None
    assert layer.origins == (f"{registry.host}/team/other", f"{registry.host}/team/demo")


def test_a_push_asks_for_its_own_repository_alone_where_others_are_refused(
    store: Store, registry: StoringRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, LOWER)
    push(store, "demo:1", route(registry))
    has_blob = transfer.has_blob

    def picky(repository: Repository, digest: str) -> bool:
        if repository._sources:
            raise DeniedError("it refuses access (HTTP 403)")
        return has_blob(repository, digest)

    monkeypatch.setattr(transfer, "has_blob", picky)
    to = route(registry, "team/other:1")
    push(store, "demo:1", to)
    assert ("team/other", "1") in registry.manifests


@pytest.mark.usefixtures("one_by_one")
def test_a_lost_connection_goes_on_where_the_registry_has_got_to(store: Store, registry: StoringRegistry) -> None:
    put(store, LARGE)
    registry.cuts = [100_000, 50_000, 20_000, 10_000]
    push(store, "demo:1", route(registry))
    layer = store.layer(sha(LARGE))
    assert layer is not None
    assert sha(registry.blobs["team/demo", layer.digest]) == layer.digest
    assert (registry.count("POST", "uploads/"), registry.count("PATCH", "u0")) == (2, 5)


@pytest.mark.usefixtures("one_by_one")
def test_a_layer_in_pieces_goes_on_in_the_middle_of_one(
    store: Store, registry: StoringRegistry, tmp_path: Path
) -> None:
    wheel = packed_wheel(tmp_path, {"demo/a.bin": TEXT, "demo/b.bin": TEXT[::-1]})
    layer = kept(store, [wheel])
    store.put(config_of(layer.diff_id), "demo:1")
    registry.cuts = [100, 10, 6_000, 3_000]
    push(store, "demo:1", route(registry))
    assert registry.count("PATCH", "u0") == 5
    assert registry.blobs["team/demo", layer.digest] == b"".join(store.blocks(layer))
    other = Store(tmp_path / "other")
    fetch(other, route(registry), "arm64")
    assert other.needed_layer(layer.diff_id).files == ()
    assert b"".join(other.blocks(layer)) == b"".join(store.blocks(layer))


@pytest.mark.usefixtures("one_by_one")
def test_an_upload_goes_on_once_the_registry_has_written_what_came(store: Store, registry: StoringRegistry) -> None:
    put(store, LARGE)
    registry.cuts, registry.late = [100_000], [False, True]
    push(store, "demo:1", route(registry))
    assert registry.count("PATCH", "u0") == 3
    assert ("team/demo", "1") in registry.manifests


def test_layers_are_sent_at_once(store: Store, registry: StoringRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, LOWER, UPPER, LARGE)
    together = threading.Barrier(transfer.UPLOADS, timeout=20)
    send = transfer.send_blob

    def slow(repository: Repository, location: str, content: Content, moved: Callable[[int], None]) -> None:
        together.wait()
        send(repository, location, content, moved)

    monkeypatch.setattr(transfer, "send_blob", slow)
    to = route(registry)
    push(store, "demo:1", to)
    assert all_done(to, 4)
    assert ("team/demo", "1") in registry.manifests


def test_a_layer_that_is_refused_ends_the_others(
    store: Store, registry: StoringRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, LOWER, UPPER, LARGE)
    refused, begun = store.layer(sha(UPPER)), threading.Barrier(3, timeout=20)
    assert refused is not None

    def stuck(_repository: Repository, _location: str, content: Content, moved: Callable[[int], None]) -> None:
        begun.wait()
        if content.digest == refused.digest:
            raise DeniedError("it refuses access (HTTP 403)")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            moved(1)
            time.sleep(0.01)
        pytest.fail("it was not ended")

    monkeypatch.setattr(transfer, "UPLOADS", 3)
    monkeypatch.setattr(transfer, "send_blob", stuck)
    with pytest.raises(DeniedError):
        push(store, "demo:1", route(registry))
    assert registry.manifests == {}


def test_what_arrives_beside_a_lost_connection_stays(
    store: Store, registry: StoringRegistry, monkeypatch: pytest.MonkeyPatch, at_once: list[float]
) -> None:
    put(store, LOWER, UPPER, LARGE)
    lost, sent = store.layer(sha(LOWER)), list[str]()
    assert lost is not None
    send = transfer.send_blob

    def unlucky(repository: Repository, location: str, content: Content, moved: Callable[[int], None]) -> None:
        sent.append(content.digest)
        if content.digest == lost.digest and sent.count(lost.digest) == 1:
            raise PassingError("connection lost")
        send(repository, location, content, moved)

    monkeypatch.setattr(transfer, "send_blob", unlucky)
    to = route(registry)
    push(store, "demo:1", to)
    assert isinstance(to.view, View)
    assert to.view.last[2:] == (sum(map(len, registry.blobs.values())),) * 2  # all of them were sent by this push
    assert sorted(sent) == sorted([*set(sent), lost.digest])
    assert at_once[-1:] == [WAITS[0]]
    assert ("team/demo", "1") in registry.manifests


@pytest.mark.usefixtures("one_by_one")
def test_an_upload_that_is_forgotten_begins_again(
    store: Store, registry: StoringRegistry, at_once: list[float]
) -> None:
    put(store, LOWER, LARGE)
    registry.cuts, registry.forgets = [10_000_000, 100_000], True
    push(store, "demo:1", route(registry))
    assert registry.count("POST", "uploads/") == 4
    assert len(registry.blobs) == 3
    assert at_once == [0.1, WAITS[0]]


def test_a_registry_that_never_answers_is_given_up(
    store: Store, registry: StoringRegistry, at_once: list[float]
) -> None:
    put(store, LARGE)
    registry.cuts, registry.forgets = [0] * 100, True
    with pytest.raises(PassingError):
        push(store, "demo:1", route(registry))
    assert [wait for wait in at_once if wait >= 1] == list(WAITS)
    assert registry.manifests == {}


def test_a_wrong_password_and_a_manifest_that_is_refused(
    store: Store, registry: StoringRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, LOWER)
    registry.login = "me:another"
    with pytest.raises(DeniedError):
        push(store, "demo:1", route(registry))
    assert registry.count("", "uploads") == 0
    registry.login = ""
    monkeypatch.setattr(transfer, "has_blob", lambda *_: True)  # as a registry that lost blobs
    with pytest.raises(RefusedError, match=r"it refuses: MANIFEST_BLOB_UNKNOWN \(HTTP 400\)"):
        push(store, "demo:1", route(registry))
    assert registry.manifests == {}


def pushed(store: Store, registry: StoringRegistry, *tars: bytes) -> str:
    image = put(store, *tars)
    push(store, image, route(registry))
    return image


def test_an_image_is_fetched_with_the_layers_that_are_missing(
    store: Store, registry: StoringRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pushed(store, registry, LOWER, LARGE)
    other = Store(tmp_path / "other")
    other.add(io.BytesIO(LOWER))
    here = route(registry)
    found = fetch(other, here, "arm64")
    assert (found.id, found.layers) == (image, (sha(LOWER), sha(LARGE)))
    digest = sha(registry.manifests["team/demo", "1"][1])
    assert (found.tags, found.digests) == ((here.reference,), (f"{registry.host}/team/demo@{digest}",))
    mine, theirs = store.layer(sha(LARGE)), other.layer(sha(LARGE))
    assert mine is not None
    assert theirs is not None
    assert (theirs.digest, theirs.origins) == (mine.digest, (f"{registry.host}/team/demo",))
    assert "fetching 1 of 2 layers" in capsys.readouterr().out
    fetch(other, route(registry, f"team/demo@{digest}"), "arm64")
    assert list((other.folder / "new").glob("*.part")) == []
    with pytest.raises(OtherArchError, match="for arm64, not for amd64"):
        fetch(other, here, "amd64")
    with pytest.raises(AbsentError):
        fetch(other, route(registry, "team/demo:2"), "arm64")


def left_there(store: Store, registry: StoringRegistry, *tars: bytes) -> Store:
    """Return another store that knows an image whose layers are still in the registry."""
    image = pushed(store, registry, *tars)
    other = Store(store.folder.with_name("other"), lambda one, layers: bring(one, route(registry), layers))
    registry.seen.clear()
    assert fetch(other, route(registry), "arm64", lazily=True).id == image
    assert registry.count("GET", "/blobs/") == 1  # the configuration
    assert [other.is_on_disk(sha(tar)) for tar in tars] == [False] * len(tars)
    return other


def test_layers_stay_in_the_registry_until_they_are_read(
    store: Store, registry: StoringRegistry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = left_there(store, registry, LOWER, UPPER)
    config = other.put(config_of(sha(LOWER), sha(UPPER), labels={"a": "b"}), "more:1")
    assert other.needed(config).layers == (sha(LOWER), sha(UPPER))
    assert registry.count("GET", "/blobs/") == 1
    other.bring([sha(LOWER)])
    assert [other.is_on_disk(sha(tar)) for tar in (LOWER, UPPER)] == [True, False]
    assert "fetching 1 of 1 layers" in capsys.readouterr().out
    write_oci(other, "more:1", tmp_path / "layout")
    for tar in (LOWER, UPPER):
        mine, theirs = store.needed_layer(sha(tar)), other.needed_layer(sha(tar))
        assert (mine.digest, mine.raw, mine.origins) == (theirs.digest, theirs.raw, theirs.origins)
    other.bring([sha(LOWER), sha(UPPER)])
    assert registry.count("GET", "/blobs/") == 3


def test_a_layer_that_is_made_here_need_not_come(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER)
    other.add(io.BytesIO(LOWER))
    assert other.is_on_disk(sha(LOWER))
    assert other.leftovers(min_age=-60) == []


def test_a_pull_fetches_what_an_earlier_one_has_left_there(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER, UPPER)
    fetch(other, route(registry), "arm64")
    assert [other.is_on_disk(sha(tar)) for tar in (LOWER, UPPER)] == [True, True]


def test_the_size_of_an_image_reports_which_layers_count_compressed(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER, UPPER)
    packed = [store.needed_layer(sha(tar)).size for tar in (LOWER, UPPER)]
    assert packed[0] < len(LOWER)
    image = Built(other.needed(route(registry).reference).id, 0, 2, (), 0, 0, None)

    def now() -> tuple[int, int, bool]:
        made = _measured(placed(other), image)
        text = table(plan(), plan().references, made, None)
        return made.size, made.remote, f"which count compressed: {made.remote})" in text

    assert now() == (sum(packed), 2, True)
    other.bring([sha(LOWER)])
    assert now() == (len(LOWER) + packed[1], 1, True)
    other.bring([sha(UPPER)])
    assert now() == (len(LOWER) + len(UPPER), 0, False)


@pytest.mark.parametrize("mounts", ["yes", "no"])
def test_a_push_needs_no_layer_that_is_in_the_registry(store: Store, registry: StoringRegistry, mounts: str) -> None:
    other = left_there(store, registry, LOWER, UPPER)
    registry.mounts = mounts
    push(other, route(registry).reference, route(registry, "team/else:1"))
    assert registry.count("GET", "/blobs/sha256") == (1 if mounts == "yes" else 3)
    assert ("team/else", "1") in registry.manifests
    assert [other.is_on_disk(sha(tar)) for tar in (LOWER, UPPER)] == [False, False]
    layer = other.needed_layer(sha(LOWER))
    assert layer.is_remote
    assert layer.origins == (f"{registry.host}/team/else", f"{registry.host}/team/demo")


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("lost", ["source", "target"])
def test_layers_go_from_one_registry_to_another_without_the_disk(
    store: Store, registry: StoringRegistry, ranges: bool, lost: str
) -> None:
    other = left_there(store, registry, LOWER, LARGE)
    with StoringRegistry() as target:
        registry.ranges = ranges
        (registry if lost == "source" else target).cuts = [10_000_000, 100_000]
        to = route(target)
        push(other, route(registry).reference, to)
        assert all_done(to, 3)
        assert ("team/demo", "1") in target.manifests
        for tar in (LOWER, LARGE):
            digest = other.needed_layer(sha(tar)).digest
            assert target.blobs["team/demo", digest] == registry.blobs["team/demo", digest]
    config = other.needed(route(registry).reference).id
    assert [path.name for path in (other.folder / "blobs/sha256").iterdir()] == [config[7:]]


def test_a_layer_comes_from_another_registry_where_the_newest_has_gone(
    store: Store, registry: StoringRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    other = left_there(store, registry, LOWER)
    with StoringRegistry() as second:
        push(other, route(registry).reference, route(second))
        assert other.needed_layer(sha(LOWER)).origins == (f"{second.host}/team/demo", f"{registry.host}/team/demo")
    with StoringRegistry() as third:
        push(other, route(registry).reference, route(third))
        assert ("team/demo", "1") in third.manifests
    context: Any = SimpleNamespace(pip=PipSettings(), env={}, say=print, is_terminal=False)
    place._fetch(context, other, [other.needed_layer(sha(LOWER))])
    assert other.is_on_disk(sha(LOWER))
    assert f"fetching layers of {second.host}/team/demo: not done" in capsys.readouterr().err


def test_layers_that_no_registry_gives_any_more_are_reported(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER)
    registry.blobs.clear()
    context: Any = SimpleNamespace(pip=PipSettings(), env={}, say=print, is_terminal=False)
    with pytest.raises(NetworkError) as caught:
        place._fetch(context, other, [other.needed_layer(sha(LOWER))])
    assert "after `clean images`" in caught.value.hint


def test_a_further_registry_is_known_for_layers_that_are_not_here(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER)
    with StoringRegistry() as second:
        push(store, "demo:1", route(second))
        fetch(other, route(second), "arm64", lazily=True)
        layer = other.needed_layer(sha(LOWER))
    assert layer.is_remote
    assert layer.origins == (f"{second.host}/team/demo", f"{registry.host}/team/demo")


@pytest.mark.parametrize(
    "odd", [{"Env": "PATH=/bin"}, {"Env": [1]}, {"Labels": {"a": "\ud800"}}, {"Env": ["A=\udfff"]}]
)
def test_an_odd_configuration_is_refused(store: Store, odd: dict[str, Any]) -> None:
    value = json.loads(config_of(sha(LOWER))) | {"config": odd}
    store.add(io.BytesIO(LOWER))
    image = store.put(json.dumps(value).encode(), "odd:1")
    assert store.find(image) is None


def test_a_layer_that_its_registry_has_lost_is_reported(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER)
    registry.blobs.clear()
    with pytest.raises(AbsentError):
        other.bring([sha(LOWER)])
    with StoringRegistry() as target, pytest.raises(AbsentError):
        push(other, route(registry).reference, route(target))
    assert target.manifests == {}


@pytest.mark.parametrize("more", [b"GET /v2/ HTTP/1.1\r\n\r\n", b""], ids=["longer", "shorter"])
def test_a_registry_that_sends_another_size_sends_nothing_past_the_end(
    store: Store, registry: StoringRegistry, more: bytes
) -> None:
    """What is sent after the end of an upload would be another request to the registry that gets it."""
    other = left_there(store, registry, LOWER)
    digest = other.needed_layer(sha(LOWER)).digest
    blob = registry.blobs["team/demo", digest]
    registry.blobs["team/demo", digest] = blob + more if more else blob[:-1]
    with StoringRegistry() as target:
        with pytest.raises(RefusedError, match=f"{registry.host}/team/demo, which has a layer: "):
            push(other, route(registry).reference, route(target))
        assert target.manifests == {}
        assert {line.split()[0] for line in target.seen} <= {"HEAD", "POST", "PATCH", "PUT", "GET"}
        assert "GET /v2/" not in target.seen
        assert [len(data) <= len(blob) for data in target.uploads.values()] != []


def test_a_login_that_the_source_refuses_is_not_one_to_the_target(store: Store, registry: StoringRegistry) -> None:
    other = left_there(store, registry, LOWER)
    registry.login = "me:another"
    with StoringRegistry() as target, pytest.raises(RefusedError, match=f"{registry.host}/team/demo, ") as caught:
        push(other, route(registry).reference, route(target))
    assert not isinstance(caught.value, DeniedError)


def test_a_redirected_upload_is_sent_again_from_its_first_byte(store: Store, registry: StoringRegistry) -> None:
    put(store, LARGE)
    registry.redirects = True
    to = route(registry)
    push(store, "demo:1", to)
    assert all_done(to, 2)
    layer = store.needed_layer(sha(LARGE))
    assert sha(registry.blobs["team/demo", layer.digest]) == layer.digest


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_goes_on_or_begins_again(
    store: Store, registry: StoringRegistry, tmp_path: Path, at_once: list[float], ranges: bool
) -> None:
    image = pushed(store, registry, LARGE)
    registry.ranges = ranges
    registry.cuts = [10_000, 100_000, 10_000, 150_000]  # each try reads the configuration first
    assert fetch(Store(tmp_path / "other"), route(registry), "arm64").id == image
    layer = store.layer(sha(LARGE))
    assert layer is not None
    assert registry.count("GET", layer.digest) == 3
    assert at_once == [WAITS[0], WAITS[0]]


def test_what_a_killed_run_has_left_is_used_and_wrong_bytes_are_not(
    store: Store, registry: StoringRegistry, tmp_path: Path
) -> None:
    image = pushed(store, registry, LARGE)
    layer = store.layer(sha(LARGE))
    assert layer is not None
    blob = registry.blobs["team/demo", layer.digest]
    for left in (blob[:100_000], b"x" * 100_000, blob + b"x", blob):
        other = Store(tmp_path / str(hash(left)))
        part = other.folder / "new" / f"{layer.digest[7:]}.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(left)
        assert fetch(other, route(registry), "arm64").id == image
        assert not part.exists()


def test_a_layer_with_another_content_is_refused(store: Store, registry: StoringRegistry, tmp_path: Path) -> None:
    pushed(store, registry, LARGE)
    other = Store(tmp_path / "other")
    layer = store.layer(sha(LARGE))
    assert layer is not None
    blob = registry.blobs["team/demo", layer.digest]
    for lie in (b"x" * len(blob), blob + b"more"):
        registry.blobs["team/demo", layer.digest] = lie
        with pytest.raises(MalformedError):
            fetch(other, route(registry), "arm64")
    assert (other.knows(sha(LARGE)), other.names()) == (False, {})
    # The blob is what the manifest names, and not what the configuration does.
    config = config_of(sha(UPPER))
    named = {"mediaType": OCI.layer, "digest": layer.digest, "size": layer.size}
    manifest = {"schemaVersion": 2, "config": {"digest": sha(config), "size": len(config)}, "layers": [named]}
    registry.blobs |= {("team/demo", layer.digest): blob, ("team/demo", sha(config)): config}
    registry.manifests["team/demo", "1"] = registry.manifests["team/demo", sha(json.dumps(manifest).encode())] = (
        OCI.manifest,
        json.dumps(manifest).encode(),
    )
    with pytest.raises(FindingsError, match="not the one that the image's configuration names"):
        fetch(other, route(registry), "arm64")
    assert list(other.folder.rglob("*.part")) == []


@pytest.mark.parametrize(
    "config",
    [
        *(b"{", b"[]", b"{}", b'{"rootfs": {"diff_ids": ["../x"]}}', b'{"rootfs": {"diff_ids": [7]}}', b"[" * 100_000),
        *(b'{"config": "text"}', b'{"config": {"Labels": [1]}}', b'{"config": {"Labels": {"a": 1}}}'),
    ],
    ids=["cut", "list", "none", "path", "number", "deep", "settings", "labels", "label"],
)
def test_a_configuration_that_is_none_is_refused(
    store: Store, registry: StoringRegistry, tmp_path: Path, config: bytes
) -> None:
    image = pushed(store, registry, LOWER)
    value = json.loads(registry.manifests["team/demo", "1"][1])
    assert value["config"]["digest"] == image
    value["config"]["digest"] = sha(config)
    entry = json.dumps(value).encode()
    registry.blobs["team/demo", sha(config)] = config
    registry.manifests["team/demo", sha(entry)] = (DOCKER.manifest, entry)
    platform = {"os": "linux", "architecture": "arm64"}
    index = json.dumps({"manifests": [{"digest": sha(entry), "size": len(entry), "platform": platform}]}).encode()
    registry.manifests["team/demo", "1"] = (LIST_TYPE, index)
    other = Store(tmp_path / "other")
    with pytest.raises(MalformedError):
        fetch(other, route(registry), "arm64")
    assert other.names() == {}


def test_a_disk_without_room_is_reported_before_a_byte_comes(
    store: Store, registry: StoringRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(store, registry, LARGE)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(UnableError, match="are to be fetched") as caught:
        fetch(Store(tmp_path / "other"), route(registry), "arm64")
    assert caught.value.code == ExitCode.UNABLE
    layer = store.layer(sha(LARGE))
    assert layer is not None
    assert registry.count("GET", layer.digest) == 0


TAG = "8.5.0-910b-debian12-py3.11-abcdefabcdef"


def placed(store: Store) -> StorePlace:
    return StorePlace(store, {}, "arm64", store.folder)


@pytest.fixture
def dock(store: Store, registry: StoringRegistry) -> Dock:
    target = type("Target", (), {"arch": "arm64", "__str__": lambda _: "the target"})()
    tag = type("Tag", (), {"plan": "abcdefabcdef", "standin": False, "__str__": lambda _: TAG})()
    recipe = SimpleNamespace(target=target, name="demo", changes="")
    plan: Any = SimpleNamespace(reference="demo:1", references=("demo:1", "demo:moving"), recipe=recipe, tag=tag)
    return Dock(
        placed(store), plan, f"{registry.host}/team", route(registry).access, print, lambda *_: nullcontext(View())
    )


LABELS = {
    "org.opencontainers.image.version": TAG,
    "org.cannery.profile": "demo",
    "org.cannery.plan": "abcdefabcdef",
    "org.cannery.target": "the target",
}


def put_labelled(store: Store, arch: str = "arm64") -> str:
    layer = store.add(io.BytesIO(LOWER))
    value = json.loads(config_of(layer.diff_id, labels=LABELS))
    return store.put(json.dumps({**value, "architecture": arch}).encode(), "demo:1")


def test_a_plan_is_pushed_and_pulled_without_an_engine(
    store: Store, registry: StoringRegistry, dock: Dock, tmp_path: Path
) -> None:
    put_labelled(store)
    image = store.find("demo:1")
    assert image is not None
    now = push_image(dock, image, None)
    for alias in dock.aliases:
        move_alias(dock, now, alias)
    assert registry.manifests["team/demo", "moving"] == registry.manifests["team/demo", "1"]
    other = Store(tmp_path / "other")
    there = Dock(placed(other), dock.plan, dock.registry, dock.access, print, dock.show)
    found = pull_image(there)
    assert found is not None
    assert found.id == image.id


@pytest.mark.parametrize("proof", ["partial", "unverified"])
def test_what_is_not_verified_has_a_tag_of_its_own_until_it_is(
    store: Store, registry: StoringRegistry, dock: Dock, tmp_path: Path, proof: str
) -> None:
    put_labelled(store)
    image = store.find("demo:1")
    assert image is not None
    less = replace(dock, proof=proof)
    push_image(less, image, None)
    assert less.aliases == ()
    assert {tag for _, tag in registry.manifests if not tag.startswith("sha256:")} == {f"1-{proof}"}
    assert pull_image(dock) is None
    other = Store(tmp_path / "other")
    there = replace(less, place=placed(other))
    found = pull_image(there)
    assert found is not None
    assert found.id == image.id
    registry.seen.clear()
    push_image(replace(there, proof=""), found, None)
    assert registry.manifests["team/demo", "1"] == registry.manifests["team/demo", f"1-{proof}"]
    assert not [line for line in map(str, registry.seen) if "PATCH" in line]


def test_two_architectures_share_a_tag(store: Store, registry: StoringRegistry, dock: Dock, tmp_path: Path) -> None:
    put_labelled(store)
    image = store.find("demo:1")
    assert image is not None
    first = push_image(dock, image, None)
    other = Store(tmp_path / "other")
    put_labelled(other, "amd64")
    second = other.find("demo:1")
    assert second is not None
    recipe = SimpleNamespace(**{**vars(dock.plan.recipe), "target": SimpleNamespace(arch="amd64")})
    plan: Any = SimpleNamespace(**{**vars(dock.plan), "recipe": recipe})
    push_image(Dock(placed(other), plan, dock.registry, dock.access, print, dock.show), second, first)
    media, body = registry.manifests["team/demo", "1"]
    assert (media, [one["platform"]["architecture"] for one in json.loads(body)["manifests"]]) == (
        LIST_TYPE,
        ["amd64", "arm64"],
    )


def test_refusals_are_errors_of_the_network(store: Store, registry: StoringRegistry, dock: Dock) -> None:
    put_labelled(store)
    image = store.find("demo:1")
    assert image is not None
    registry.login = "me:another"
    for job in (lambda: push_image(dock, image, None), lambda: pull_image(dock)):
        with pytest.raises(NetworkError, match="does not take the login that docker's settings have") as caught:
            job()
        assert (caught.value.code, "docker login" in caught.value.hint) == (ExitCode.NETWORK, True)
        assert "s3cret" not in str(caught.value)
    registry.login = ""
    registry.cuts, registry.forgets = [0] * 100, True
    with pytest.raises(NetworkError, match="push: ") as caught:
        push_image(dock, image, None)
    assert (caught.value.code, caught.value.where) == (ExitCode.NETWORK, dock.reference)
    registry.server.shutdown()
    registry.server.server_close()
    with pytest.raises(NetworkError, match="connection refused"):
        pull_image(dock)


def test_a_tag_that_holds_another_image_is_a_finding(store: Store, registry: StoringRegistry, dock: Dock) -> None:
    put(store, LOWER)
    push(store, "demo:1", route(registry))
    with pytest.raises(FindingsError, match="the image under this tag does not fit it"):
        pull_image(dock)


def test_a_damaged_layer_is_not_pushed(store: Store, registry: StoringRegistry) -> None:
    image = put(store, LOWER, UPPER)
    blob = flipped(store, image)
    with pytest.raises(UnableError, match="damaged a part of this image"):
        push(store, image, route(registry))
    assert not blob.exists()
    assert ("team/demo", "1") not in registry.manifests


def test_a_store_that_cannot_be_written_is_pushed_from(
    store: Store, registry: StoringRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_note(_layer: object) -> None:
        raise PermissionError("another user's")

    image = put(store, LOWER, UPPER)
    monkeypatch.setattr(store, "note", no_note)
    push(store, image, route(registry))
    assert ("team/demo", "1") in registry.manifests


FOUNDATION, PYTHON = "cannery-foundation:abcdefabcdef", "3.11.2 (main, Mar 13 2026) [GCC]\n"


@pytest.fixture
def work(dock: Dock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Work:
    monkeypatch.setattr(sharing, "foundation_reference", lambda _plan: FOUNDATION)
    vars(dock.plan).update(epoch=0, upper=())
    context = SimpleNamespace(cache=tmp_path / "cache")
    return cast("Work", SimpleNamespace(place=dock.place, plan=dock.plan, context=context))


@pytest.mark.parametrize("label", [PYTHON, "", " ", "../../evil.3 (x)", "3.11"])
def test_a_foundation_is_shared_and_taken_with_a_version_that_is_one(
    store: Store, dock: Dock, work: Work, label: str
) -> None:
    layer = store.add(io.BytesIO(LOWER))
    shared = f"{dock.registry}/{FOUNDATION}"
    store.put(config_of(layer.diff_id, labels={PYTHON_LABEL: label}), shared)
    push(store, shared, Route(shared, dock.access, View(), print))
    store.remove(shared)
    other = placed(Store(store.folder.with_name("other")))
    vars(work)["place"] = other
    sharing.take_foundation(work, replace(dock, place=other))
    found = other.find(FOUNDATION)
    assert found is not None
    assert not other.store.is_on_disk(layer.diff_id)
    assert known_python(work.context.cache, found.id) == (PYTHON if label == PYTHON else "")


def test_a_foundation_that_cannot_be_pushed_fails_no_push(
    store: Store, registry: StoringRegistry, dock: Dock, work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some registries refuse tags of a form that they do not know."""
    layer = store.add(io.BytesIO(LOWER))
    store.put(config_of(layer.diff_id), FOUNDATION)
    registry.login = "me:another"
    sharing.share_parts(work, dock)
    assert "foundation: not pushed as " in capsys.readouterr().out
    assert [*store.names()] == [FOUNDATION]
    registry.login = ""
    sharing.share_parts(work, dock)
    assert ("team/cannery-foundation", "abcdefabcdef") in registry.manifests
    assert [*store.names()] == [FOUNDATION]


SOURCES = tuple(
    Layer(name, kind, "0" * 64, "")
    for name, kind in {"torch": LayerKind.GROUP, "vllm": LayerKind.SOURCE, "files": LayerKind.FILES}.items()
)


@pytest.mark.parametrize("is_trial", [False, True])
def test_compiled_sources_are_shared_with_the_layers_below_them(
    store: Store, registry: StoringRegistry, dock: Dock, work: Work, *, is_trial: bool
) -> None:
    """A trial has one more layer, so its layers are not those of the plan."""
    vars(dock.plan)["upper"] = SOURCES
    tars = [tar_of((name, b"x")) for name in ("base", "torch", "vllm", "files", *(["pin"] if is_trial else []))]
    ids = [store.add(io.BytesIO(tar)).diff_id for tar in tars]
    store.put(config_of(ids[0]), FOUNDATION)
    image = store.put(config_of(*ids), "demo:1")
    sharing.share_parts(work, dock)
    _, name = part_references(ids[:2], [SOURCES[1]])
    repository, _, tag = name.partition(":")
    assert ((f"team/{repository}", tag) in registry.manifests) is not is_trial
    assert store.names() == {FOUNDATION: store.needed(FOUNDATION).id, "demo:1": image}
    if not is_trial:
        other = placed(Store(store.folder.with_name("other")))
        vars(work)["place"] = other
        taken = sharing.take_part(work, replace(dock, place=other), name)
        assert taken is not None
        assert list(taken.layers) == ids[:3]
        assert name in other.store.names()
        assert not any(map(other.store.is_on_disk, ids))
