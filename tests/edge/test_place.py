"""Where an image is made: in the engine that answers, else in the image store of this host."""

from __future__ import annotations

import argparse
import gc
import io
import re
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from storing_registry import StoringRegistry
from test_store import LOWER, UPPER, put
from test_store_transfer import View

from cannery.commands import image
from cannery.commands import place as module
from cannery.commands.host import clean
from cannery.commands.image import _push
from cannery.commands.place import image_place, place_with
from cannery.context import Context
from cannery.engine.io.find import NoEngineError
from cannery.engine.io.registry import Access, Login
from cannery.errors import ExitCode, NetworkError, UnableError, UsageError
from cannery.host.io.place import EnginePlace, StorePlace
from cannery.making.base import stored_base
from cannery.making.image import Built
from cannery.making.parts import BuildOptions, Way, why_baked
from cannery.pipeline import Work
from cannery.recipe.recipe import Options
from cannery.store.io.store import Store
from cannery.store.io.transfer import Route, push
from cannery.util.io.pip_settings import PipSettings
from cannery.vocab import Arch, BaseKind
from tests.unit.factories import plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)


def no_engine(*_args: object, **_more: object) -> Any:  # noqa: ANN401 - it raises
    raise NoEngineError("no Docker engine is running", hint="install one")


def test_without_an_engine_it_is_the_store(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_engine", no_engine)
    monkeypatch.setattr(module, "why_not", lambda _cache: "")
    place = image_place(context)
    assert isinstance(place, StorePlace)
    assert place.store.folder == context.cache / "images"


def test_an_engine_goes_first(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = object()
    monkeypatch.setattr(module, "find_engine", lambda *_args, **_more: engine)
    monkeypatch.setattr(module, "docker_client", lambda _engine: "client")
    monkeypatch.setattr(module, "why_not", lambda _cache: pytest.fail("boxes were looked at"))
    place = image_place(context)
    assert isinstance(place, EnginePlace)
    assert place.engine is engine


def test_an_engine_that_is_named_and_does_not_answer_is_no_reason_for_the_store(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_args: object, **_more: object) -> None:
        raise UnableError("no Docker engine is running: refused", where="DOCKER_HOST=tcp://x")

    monkeypatch.setattr(module, "find_engine", gone)
    with pytest.raises(UnableError) as caught:
        image_place(context)
    assert caught.value.where == "DOCKER_HOST=tcp://x"


def test_a_host_that_can_do_neither_is_told_both(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_engine", no_engine)
    monkeypatch.setattr(module, "why_not", lambda _cache: "only root can")
    with pytest.raises(UnableError) as caught:
        image_place(context)
    assert caught.value.code == ExitCode.UNABLE
    assert "no Docker engine is running" in caught.value.what
    assert "only root can" in caught.value.what


def test_what_needs_no_program_of_the_image_is_made_where_none_runs(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_engine", no_engine)
    monkeypatch.setattr(module, "why_not", lambda _cache: "only root can")
    place = module.making_place(context)
    assert isinstance(place, StorePlace)
    assert "only root can" in place.cannot("amd64")
    image = put(place.store, LOWER)  # of arm64
    with pytest.raises(UnableError, match=r"byte code.*only root can"):
        place.python_command(image, "/usr/bin/python3")


@pytest.mark.parametrize(("is_there", "words"), [(True, ""), (False, "runs no arm64 programs")])
def test_another_architecture_runs_where_an_emulator_is(
    context: Context, monkeypatch: pytest.MonkeyPatch, is_there: bool, words: str
) -> None:
    monkeypatch.setattr("cannery.host.io.place.is_registered", lambda _arch: is_there)
    place = module.store_place(context)
    assert place.cannot("amd64") == ""
    assert (words in place.cannot("arm64"), bool(place.cannot("arm64"))) == (True, not is_there)


def with_engine(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let an engine answer that has images of those names."""
    monkeypatch.setattr(module, "find_engine", lambda *_args, **_more: object())
    monkeypatch.setattr(module, "docker_client", lambda _engine: "client")
    monkeypatch.setattr(EnginePlace, "find", lambda _place, name: name if name in names else None)


def test_an_image_is_where_it_was_made(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an engine, `image --output store` leaves it in the store: push, save, verify and diff find it there."""
    put(Store(context.cache / "images"), LOWER, name="stack:1")
    with_engine(monkeypatch)
    monkeypatch.setattr(module, "why_not", lambda _cache: "")
    for runs in (False, True):
        found = place_with(context, "stack:1", runs=runs)
        assert isinstance(found, StorePlace)
        assert found.find("stack:1") is not None
        assert isinstance(place_with(context, "stack:2", runs=runs), EnginePlace)
    monkeypatch.setattr(module, "why_not", lambda _cache: "only root can")
    assert isinstance(place_with(context, "stack:1"), StorePlace)
    with pytest.raises(UnableError, match="it cannot run here: only root can"):
        place_with(context, "stack:1", runs=True)
    with_engine(monkeypatch, "stack:1")
    assert isinstance(place_with(context, "stack:1", runs=True), EnginePlace)


@pytest.mark.parametrize("kind", ["images", "builds", "unpacked"])
def test_clean_waits_for_who_uses_the_store(context: Context, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """A run unpacks layers of which no image has the name yet: such a folder is as old as the layer says."""
    place = module.store_place(context)
    diff_ids = [place.store.needed(put(place.store, LOWER)).layers[0], place.store.add(io.BytesIO(UPPER)).diff_id]
    unpacked = [place.store.unpacked(diff_id) for diff_id in diff_ids]
    vars(context).update(say=print)
    arguments = argparse.Namespace(kinds=[kind], older_than=0.0, keep=0)
    cleaning = threading.Thread(target=clean, args=(arguments, context))
    cleaning.start()
    cleaning.join(0.5)
    assert cleaning.is_alive()
    assert place.find("demo:1") is not None
    assert all(folder.is_dir() for folder in unpacked)
    del place
    gc.collect()
    cleaning.join(30)
    assert (Store(context.cache / "images").names() == {}) is (kind == "images")
    assert [folder.is_dir() for folder in unpacked] == [kind == "builds", kind == "unpacked"]
    assert "another run uses the image store" in capsys.readouterr().out


def test_an_image_whose_push_fails_is_shown(
    context: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreached(*_args: object) -> None:
        raise NetworkError("connection refused")

    monkeypatch.setattr(image, "_push", unreached)
    work: Any = SimpleNamespace(plan=plan(), place=SimpleNamespace(tag=lambda *_: None), context=context)
    clock = time.monotonic() - 100
    arguments = argparse.Namespace(no_verify=True, output=None, push=True, proof="", clock=clock)
    made = Built("sha256:1", 10, 1, (), 0, 0, None)
    with pytest.raises(NetworkError):
        image._verify_and_push(arguments, work, made)
    out = capsys.readouterr().out
    assert ("sha256:1" in out, plan().reference in out) == (True, True)
    assert re.search(r"^time +10\d\.\d s$", out, re.MULTILINE), "the whole command's"


@pytest.mark.parametrize(("proof", "pushed"), [("", 0), ("partial", 0), ("unverified", 1)])
def test_an_image_that_cannot_be_verified_here_is_pushed_where_that_is_asked_for_alone(
    context: Context, monkeypatch: pytest.MonkeyPatch, proof: str, pushed: int
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(image, "_push", lambda *found: calls.append(found))
    vars(context).update(say=print)
    place = SimpleNamespace(tag=lambda *_: None, why_not="no CAP_SYS_ADMIN")
    work: Any = SimpleNamespace(plan=plan(), place=place, context=context)
    arguments = argparse.Namespace(no_verify=False, output=None, push=True, proof=proof, clock=0.0)
    outcome = image._verify_and_push(arguments, work, Built("sha256:1", 10, 1, (), 0, 0, None))
    assert (outcome.code, len(calls)) == (ExitCode.DONE if pushed else ExitCode.UNABLE, pushed)
    assert ("error" in outcome.value) == (not pushed)


def test_a_check_that_needs_an_npu_is_no_error_of_the_image(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    result = SimpleNamespace(status=3, report={"result": "failed"}, reused=False)
    monkeypatch.setattr(image, "verify_built", lambda *_: result)
    monkeypatch.setattr(image, "table", lambda *_: "")
    work: Any = SimpleNamespace(plan=plan(), place=SimpleNamespace(tag=lambda *_: None, why_not=""), context=context)
    arguments = argparse.Namespace(no_verify=False, output=None, push=False, proof="", clock=0.0)
    outcome = image._verify_and_push(arguments, work, Built("sha256:1", 10, 1, (), 0, 0, None))
    assert outcome.code == ExitCode.UNABLE
    assert "error" not in outcome.value


def test_what_went_into_the_store_is_pushed_from_there(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[Any] = []
    monkeypatch.setattr(module, "find_engine", lambda *_: pytest.fail("an engine was looked for"))
    monkeypatch.setattr("cannery.commands.registry.push_made", lambda work, *_, **__: pushed.append(work.place))
    monkeypatch.setattr(module, "why_not", lambda _cache: "")
    for output in ("store", "oci:there"):
        place = module.making_place(context, output)
        work: Any = Work(context, None, None, place)  # type: ignore[arg-type] # what a push reads is not read here
        _push(
            argparse.Namespace(registry="registry.example/team", force=False, attach=False, sign=None, proof=""), work
        )
        assert pushed.pop() is place
        assert isinstance(place, StorePlace)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (BuildOptions(no_cache=True), "--no-cache needs"),
        (BuildOptions(builder="mine"), "--builder needs"),
        (BuildOptions(cache="r.example/c"), "--cache needs"),
        (BuildOptions(way=Way.BAKE), "--with bake needs"),
        (BuildOptions(no_cache=True, way=Way.BAKE), "--no-cache and --with bake need"),
    ],
)
def test_what_buildkit_alone_does_needs_an_engine(context: Context, options: BuildOptions, named: str) -> None:
    place = module.store_place(context)
    work: Any = type("Work", (), {"plan": plan(), "place": place})()
    assert why_baked(work, BuildOptions()) == ""
    with pytest.raises(UnableError, match=f"^{named} BuildKit, and no Docker engine is running"):
        why_baked(work, options)


def test_an_image_that_is_not_in_the_store_is_named_with_what_makes_it(context: Context) -> None:
    place = module.store_place(context)
    assert place.find("stack:1") is None
    with pytest.raises(UsageError, match=r"no image stack:1 in this host's image store") as caught:
        place.needed("stack:1", "stack")
    assert caught.value.hint
    assert "build.py image stack" in caught.value.hint


def test_a_base_of_a_registry_is_fetched_once(context: Context, tmp_path: Path) -> None:
    there = Store(tmp_path / "there")
    image = put(there, LOWER, UPPER)
    with StoringRegistry() as registry:
        access = Access(PipSettings(), lambda _: Login({}), actions="pull,push")
        push(there, image, Route(f"{registry.host}/ascend/cann:1", access, View(), print))
        place = module.store_place(context)
        vars(context).update(pip=PipSettings(), say=print)
        reference = f"{registry.host}/ascend/cann:1"
        base = SimpleNamespace(kind=BaseKind.REAL)
        recipe = SimpleNamespace(base=base, target=SimpleNamespace(arch=Arch.ARM64))
        made: Any = SimpleNamespace(recipe=recipe, base_reference=reference, base_source="", build_reference=reference)
        work: Any = SimpleNamespace(plan=made, context=context)
        name = stored_base(work, place, Arch.ARM64)
        found = place.find(name)
        assert found is not None
        assert found.id == image
        registry.seen.clear()
        assert stored_base(work, place, Arch.ARM64) == name
        assert registry.seen == []
        with pytest.raises(NetworkError, match="the base cannot be fetched") as caught:
            stored_base(work, place, Arch.AMD64)
        assert caught.value.where == reference


def test_a_base_whose_registry_wants_a_login_names_it(context: Context) -> None:
    with StoringRegistry(login="me:s3cret") as registry:
        vars(context).update(pip=PipSettings(), say=print)
        recipe = SimpleNamespace(base=SimpleNamespace(kind=BaseKind.REAL), target=SimpleNamespace(arch=Arch.ARM64))
        reference = f"{registry.host}/ascend/cann:1"
        made: Any = SimpleNamespace(recipe=recipe, base_reference=reference, base_source="", build_reference=reference)
        work: Any = SimpleNamespace(plan=made, context=context)
        with pytest.raises(NetworkError, match="docker's settings have no login for it") as caught:
            stored_base(work, module.store_place(context), Arch.ARM64)
        assert caught.value.where == registry.host
        assert f"`docker login {registry.host}`" in caught.value.hint


def test_a_stand_in_is_the_one_that_was_made(context: Context) -> None:
    place = module.store_place(context)
    made = plan(Options(base="standin", arch=Arch.ARM64))
    work: Any = SimpleNamespace(plan=made, context=context)
    assert stored_base(work, place, Arch.ARM64) == made.base_reference
    assert stored_base(work, place, Arch.AMD64) == made.build_reference
