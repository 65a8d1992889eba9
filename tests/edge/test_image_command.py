"""Parts of `build.py image` that need no engine."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from checkouts import FROZEN
from factories import plan
from small_checkout import make_small
from stub_index import StubIndex
from stub_registry import REPOSITORY, TAG, StubRegistry

from cannery.assemble.image import Part
from cannery.base.io import find as base_images
from cannery.catalog.io.read import load_catalog
from cannery.commands import image as image_command
from cannery.commands import place as place_command
from cannery.commands.image import _tagged
from cannery.context import Context, read_context
from cannery.engine.io.client import EngineError
from cannery.engine.io.containers import LABEL, owner
from cannery.engine.io.find import Engine, require_builder
from cannery.errors import BuildFailedError, ExitCode, NetworkError, UnableError
from cannery.host.io.place import EnginePlace
from cannery.lock.io.store import bind
from cannery.lock.io.wheels import is_in_store, store_path
from cannery.making.image import whole_files
from cannery.making.parts import BuildOptions, _overrides, baked
from cannery.pipeline import Work
from cannery.recipe.environment import expand_env
from cannery.recipe.recipe import Options
from cannery.ship.io import registry as registry_images
from cannery.standin.io import rootfs
from cannery.util.io.pip_settings import PipSettings
from cannery.verify.io.run import Verified
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from small_checkout import Done, Small

    from cannery.verify.io.run import VerifyRequest

BASE_TAG = "8.5.0-910b-ubuntu22.04-py3.11"


def test_a_wheel_that_rotted_on_the_disk_is_named_and_removed(tmp_path: Path) -> None:
    context, made = Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False), plan()
    rotten = made.lock.packages[0]
    path = store_path(rotten, context.cache)
    path.parent.mkdir(parents=True)
    with path.open("wb") as stream:
        stream.truncate(rotten.size)
    assert is_in_store(rotten, context.cache)
    with pytest.raises(BuildFailedError) as caught, whole_files(context, made):
        raise BuildFailedError("exit code 2", hint="this stage alone: …")
    assert rotten.file in caught.value.hint
    assert not is_in_store(rotten, context.cache)


def test_another_failure_keeps_its_own_hint(tmp_path: Path) -> None:
    context = Context(tmp_path, tmp_path / "cache", {}, Arch.AMD64, is_terminal=False)
    with pytest.raises(BuildFailedError) as caught, whole_files(context, plan()):
        raise BuildFailedError("exit code 2", hint="this stage alone: …")
    assert caught.value.hint == "this stage alone: …"


class Image:
    """build.py on a checkout whose bases come from two registries, on a machine where an engine would be the next."""

    def __init__(self, small: Small, registries: tuple[StubRegistry, StubRegistry]) -> None:
        self.small = small
        self.registries = registries
        # By name: a private address may not stand in a Dockerfile.
        repositories = [f"localhost:{registry.server.server_address[1]}/{REPOSITORY}" for registry in registries]
        path = small.root / "images/bases/registries.yaml"
        path.write_text(f"source: made up\nrepositories: [{', '.join(repositories)}]\n")
        self.references = [f"{repository}:{BASE_TAG}" for repository in repositories]

    def add(self, registry: StubRegistry, **changes: str) -> str:
        """Put the base into a registry as it is recorded, but for `changes` of its environment; return its digest."""
        found = bind(read_context(self.small.root), load_catalog(self.small.root / "images"), "stack", Options())
        env = expand_env(found.base.line, found.target, found.base.tag) | changes
        digest = registry.add(config={"Env": [f"{name}={value}" for name, value in env.items()]})
        registry.manifests[BASE_TAG] = registry.manifests[TAG]
        return digest

    def __call__(self, *words: str) -> Done:
        return self.small("image", "stack", *words)

    @property
    def fetched(self) -> list[str]:
        return [path for path in self.small.index.seen if path.endswith(".whl")]


@pytest.fixture
def image(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Image]:
    def no_engine(*_args: object, **_more: object) -> None:
        raise UnableError("the engine was asked for")

    for module in (image_command, place_command):
        monkeypatch.setattr(module, "find_engine", no_engine)
    monkeypatch.setattr(base_images, "_running_client", lambda *_: None)
    with StubIndex() as index, StubRegistry() as first, StubRegistry() as second:
        small = make_small(tmp_path, index, capsys, monkeypatch)
        index.seen.clear()
        yield Image(small, (first, second))


def test_a_base_is_found_before_an_engine_is(image: Image) -> None:
    digest = image.add(image.registries[0])
    done = image()
    assert done.code == ExitCode.UNABLE
    assert f"base: {image.references[0]} is {digest[:19]}… (found in " in done.err
    assert done.err.index("base: ") < done.err.index("the engine was asked for")
    assert "[base." not in done.err
    assert image.fetched == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--push",), "REGISTRY"),
        (("--push", "--registry", "r.example/x", "--no-verify"), "leave --no-verify out"),
        (("--registry", "r.example/x:1"), "REGISTRY: it has a tag"),
    ],
)
def test_a_push_that_cannot_follow_is_refused_at_once(image: Image, words: tuple[str, ...], message: str) -> None:
    done = image(*words)
    assert done.code == ExitCode.USAGE
    assert message in done.err
    assert image.fetched == []
    assert "base: " not in done.err


def test_a_folder_that_is_no_layout_is_refused_at_once(image: Image, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    done = image("--output", f"oci:{file}")
    assert done.code == ExitCode.USAGE
    assert str(file) in done.err
    assert image.fetched == []


def test_the_second_registry_takes_the_place_of_the_first(image: Image) -> None:
    digest = image.add(image.registries[1])
    done = image()
    assert done.code == ExitCode.UNABLE
    assert f"base: {image.references[0]} is not used: it has no such image (HTTP 404)" in done.err
    assert f"base: {image.references[1]} is {digest[:19]}…" in done.err


def test_where_no_registry_can_be_reached_the_build_ends_at_once(image: Image) -> None:
    for registry in image.registries:
        registry.server.shutdown()
        registry.server.server_close()
    started = time.monotonic()
    done = image()
    assert time.monotonic() - started < 10
    assert done.code == ExitCode.NETWORK
    for reference in image.references:
        assert f"\n  {reference}: connection refused\n" in done.err
    assert "the engine was asked for" not in done.err
    assert image.fetched == []


def test_a_base_with_another_python_is_refused(image: Image) -> None:
    image.add(image.registries[0], PATH="/usr/local/python3.11.99/bin:/bin")
    for words in ((), ("--force",)):
        done = image(*words)
        assert done.code == ExitCode.FINDINGS
        assert "error [base.python]" in done.err
        assert "it has /usr/local/python3.11.99" in done.err


def test_a_base_that_was_rewritten_is_warned_of(image: Image) -> None:
    image.add(image.registries[0], ATB_HOME_PATH="/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_0")
    done = image()
    assert done.code == ExitCode.UNABLE
    assert "warning [base.atb]" in done.err
    assert "the pushed image is not the one that was recorded" in done.err


def test_the_users_own_base_is_compared_with_the_target(image: Image) -> None:
    registry = image.registries[1]
    image.add(registry, ASCEND_TOOLKIT_HOME="/usr/local/Ascend/cann-8.5.1")
    registry.manifests["8.5.0-a3-ubuntu22.04-py3.11"] = registry.manifests[TAG]
    done = image("--base", f"{registry.repository}:8.5.0-a3-ubuntu22.04-py3.11")
    assert done.code == ExitCode.UNABLE
    assert "warning [base.tag]" in done.err
    assert "chip a3 (target: 910b)" in done.err
    assert "warning [base.toolkit] CANN's home is /usr/local/Ascend/cann-8.5.1" in done.err
    assert image.registries[0].seen == []


def test_an_image_for_another_architecture_is_a_finding(image: Image) -> None:
    registry = image.registries[0]
    registry.add(["arm64"])
    done = image("--base", registry.reference)
    assert done.code == ExitCode.FINDINGS
    assert "it has the image for arm64, not for amd64" in done.err


@pytest.mark.parametrize("words", [("plan", "stack"), ("check", "stack"), ("render", "stack", "--output", "out")])
def test_other_commands_ask_no_registry(image: Image, words: tuple[str, ...]) -> None:
    assert image.small(*words).code == 0
    assert [registry.seen for registry in image.registries] == [[], []]
    if words[0] == "render":
        text = Path("out/Dockerfile").read_text()
        assert f"FROM {image.references[0]} AS system\n" in text
        assert "@sha256" not in text


def test_what_is_checked_is_what_is_built(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that is built names the digest in each FROM; the tag is that of the plan that asked no one."""
    digest = image.add(image.registries[1])
    planned = json.loads(image.small("plan", "stack", "--json").out)

    def no_bake(*_args: object, **_more: object) -> None:
        raise BuildFailedError("far enough")

    engine = SimpleNamespace(host="tcp://a", buildx_command=lambda **_: (), data_root=None)
    monkeypatch.setattr(place_command, "find_engine", lambda *_args, **_more: engine)
    client = SimpleNamespace(images=SimpleNamespace(list=list))
    monkeypatch.setattr(place_command, "docker_client", lambda _engine: client)
    monkeypatch.setattr(image_command, "check_engine_space", lambda *_: None)
    monkeypatch.setattr("cannery.build.io.buildx.bake", no_bake)
    done = image()
    assert "far enough" in done.err
    assert done.code == ExitCode.BUILD_FAILED
    (folder,) = (path for path in (image.small.root / "out").iterdir() if path.is_dir())
    lines = [line for line in (folder / "Dockerfile").read_text().splitlines() if line.startswith("FROM ")]
    bases = {line.split()[-3] for line in lines if "/" in line.split()[-3]}
    # The second registry has it: it gives the image that is called by its first name.
    assert bases == {f"{image.references[0]}@{digest}"}
    bake = json.loads((folder / "docker-bake.json").read_text())
    sources = bake["target"]["image"]["contexts"]
    assert sources == {f"{image.references[0]}@{digest}": f"docker-image://{image.references[1]}@{digest}"}
    assert bake["target"]["image"]["tags"][0] == planned["reference"]


def test_the_level_train_wants_a_trainer(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_command, "find_engine", lambda *_args, **_more: pytest.fail("an engine was looked for"))
    done = image.small("verify", "stack", "--level", "train")
    assert done.code == ExitCode.USAGE
    assert "neither verl nor MindSpeed-RL" in done.err


def test_verify_expects_the_manifest_of_the_base_that_the_image_names(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    gone: list[str] = []
    boot, namespace, _, start = owner().split()
    left = [{"Id": "of a killed run", "Labels": {LABEL: f"{boot} {namespace} 4194305 {start}"}}]  # above any pid

    def removed(container: str, *, force: bool) -> None:
        gone.append(f"{container} {force}")

    def no_run(request: VerifyRequest, *_more: object) -> Verified:
        asked.append(request.manifest_sha256)
        return Verified({"checks": []}, 0, reused=False)

    def labelled(reference: str) -> None:
        labels = {"org.opencontainers.image.base.name": reference}
        images = SimpleNamespace(
            get=lambda _reference: SimpleNamespace(attrs={"Id": "sha256:1", "Config": {"Labels": labels}})
        )
        api = SimpleNamespace(containers=lambda **_options: left, remove_container=removed)
        client = SimpleNamespace(images=images, api=api)
        monkeypatch.setattr(place_command, "docker_client", lambda _engine: client)
        image.small("verify", "stack", "--json")

    engine = SimpleNamespace()
    monkeypatch.setattr(place_command, "find_engine", lambda *_args, **_more: engine)
    monkeypatch.setattr("cannery.verify.io.run.verify", no_run)
    first, second = image.references
    for reference in (first, second, f"{second}@sha256:{'1' * 64}", f"{second}@sha256:{'2' * 64}", "other.example/x:1"):
        labelled(reference)
    assert len(set(asked)) == 4
    assert gone == ["of a killed run True"] * 5
    assert asked[0] == asked[-1]  # labels that name another base are none of this plan's


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (None, "is not there for amd64: building instead"),
        (
            NetworkError("connection refused", where="registry.example"),
            "not reused: registry.example: connection refused",
        ),
        (EngineError("the engine is cross"), "not reused: the engine is cross"),
    ],
)
def test_where_no_prebuilt_image_is_had_it_is_built(
    image: Image, monkeypatch: pytest.MonkeyPatch, outcome: Exception | None, words: str
) -> None:
    def pulled(_dock: object) -> None:
        if outcome:
            raise outcome

    dock = SimpleNamespace(reference="registry.example/stack:1")
    engine = SimpleNamespace()
    monkeypatch.setattr(place_command, "find_engine", lambda *_args, **_more: engine)
    client = SimpleNamespace(images=SimpleNamespace(list=list))
    monkeypatch.setattr(place_command, "docker_client", lambda _engine: client)
    monkeypatch.setattr("cannery.commands.registry.dock_of", lambda *_args, **_more: dock)
    monkeypatch.setattr(registry_images, "pull_image", pulled)
    for registry in image.registries:
        registry.server.shutdown()
        registry.server.server_close()
    done = image("--reuse", "--registry", "registry.example")
    assert words in done.err
    assert "no registry gives the base image" in done.err  # it went on to build
    assert image("--reuse").code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("able", "engine", "code", "words"),
    [
        (False, "", ExitCode.UNABLE, "this host cannot run arm64 programs"),
        (True, "", ExitCode.UNABLE, "the engine was asked for"),
        (False, "tcp://builder.example:2376", ExitCode.UNABLE, "the engine was asked for"),
    ],
)
def test_an_emulator_is_looked_for_before_anything_is_fetched(
    image: Image, monkeypatch: pytest.MonkeyPatch, able: bool, engine: str, code: ExitCode, words: str
) -> None:
    monkeypatch.setattr(rootfs, "is_registered", lambda _arch: able)
    if not able and not engine:
        there: Any = SimpleNamespace()
        monkeypatch.setattr(image_command, "making_place", lambda *_: EnginePlace(there, there, {}))
    monkeypatch.setenv("DOCKER_HOST", engine)
    done = image.small("image", "stack", "--arch", "arm64", "--base", "standin")
    assert (done.code, words in done.err) == (code, True), done.err
    assert image.small.index.seen == []


@pytest.mark.parametrize(
    ("code", "pins", "wanted"),
    [
        (ExitCode.DONE, (), ["reference", "alias"]),
        (ExitCode.UNABLE, (), ["reference", "alias"]),
        (ExitCode.VERIFY_FAILED, (), ["reference"]),
        (ExitCode.DONE, ("ray==2.51.0",), ["reference"]),
    ],
)
def test_the_moving_tag_follows_what_verify_has_not_failed(
    code: ExitCode, pins: tuple[str, ...], wanted: list[str]
) -> None:
    made = plan(Options(pins=pins))
    moved: list[str] = []
    place = SimpleNamespace(tag=lambda _name, alias: moved.append(alias))
    names = {"reference": made.reference, "alias": made.alias}
    work = SimpleNamespace(plan=made, place=place)
    assert _tagged(work, code) == tuple(names[name] for name in wanted)  # type: ignore[arg-type] # what it reads of Work
    assert moved == [names[name] for name in wanted[1:]]


def test_the_build_itself_sets_the_exact_tag_alone() -> None:
    made = plan()
    part = Part("image", made.reference)
    first, output = _overrides(BuildOptions(), part)
    assert first == f"image.tags={made.reference}"
    # Docker's media types: some registries take no OCI manifest.
    assert output == "*.output=type=image,oci-mediatypes=false"
    cached = _overrides(BuildOptions("b", "r.example/team/cache:1"), part)
    assert cached[1:3] == (
        "*.cache-from=type=registry,ref=r.example/team/cache:1",
        "*.cache-to=type=registry,ref=r.example/team/cache:1,mode=max",
    )
    assert _overrides(BuildOptions(builder="b"), part)[-1] == "*.output=type=docker,oci-mediatypes=false"


@pytest.mark.parametrize(
    ("words", "is_classic", "code", "message"),
    [
        (("r.example/team/cache",), True, ExitCode.USAGE, "cannot write a cache to a registry"),
        (("r.example/team/cache", "--base", "standin"), True, ExitCode.USAGE, "cannot write a cache to a registry"),
        (("r.example/Team cache",), False, ExitCode.USAGE, "CACHE"),
        (("r.example/team/cache",), False, ExitCode.NETWORK, "no registry gives the base image"),  # it goes on
    ],
)
def test_a_cache_that_no_builder_writes_is_refused_at_once(
    image: Image,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    is_classic: bool,
    code: ExitCode,
    message: str,
) -> None:
    engine = replace(made_engine(Path("docker")), is_classic=is_classic)
    monkeypatch.setattr(image_command, "find_engine", lambda _env: engine)
    done = image("--cache", *words)
    assert (done.code, message in done.err) == (code, True), done.err
    assert (image.registries[0].seen == []) == (code is ExitCode.USAGE)


def made_engine(client: Path) -> Engine:
    versions = {"server_version": "26", "arch": "amd64"}
    return Engine("unix:///s", client, data_root=None, **versions)


def test_a_builder_that_buildx_does_not_know_is_named_before_anything_is_fetched(tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text(
        '#!/bin/sh\n[ "$*" = "buildx --builder default inspect near" ] && exit 0\n'
        'echo "ERROR: no builder \\"$5\\" found" >&2\nexit 1\n'
    )
    client.chmod(0o755)
    require_builder(made_engine(client), "near", {})
    with pytest.raises(UnableError) as caught:
        require_builder(made_engine(client), "nosuch", {})
    assert caught.value.what == "buildx has no builder 'nosuch': ERROR: no builder \"nosuch\" found"
    assert caught.value.where == "BUILDER"


@pytest.mark.parametrize(("value", "verbose", "said"), [("plain", True, 0), ("auto", False, 0), ("rawjson", False, 1)])
def test_buildkit_s_own_choice_of_progress_counts_or_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, verbose: bool, said: int
) -> None:
    """Case W18: BUILDKIT_PROGRESS had no effect and no message."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr("cannery.build.io.buildx.bake", lambda *_, **more: seen.update(more))

    def make_view(_stream: object, look: object, **_more: object) -> SimpleNamespace:
        seen["look"] = look
        return SimpleNamespace(update=None)

    monkeypatch.setattr("cannery.build.io.view.make_view", make_view)
    context = Context(tmp_path, tmp_path / "cache", {"BUILDKIT_PROGRESS": value}, Arch.AMD64, is_terminal=False)
    lines: list[str] = []
    vars(context).update(say=lines.append, pip=PipSettings())
    place = EnginePlace(made_engine(tmp_path / "docker"), None, {})  # type: ignore[arg-type]
    work = Work(context, load_catalog(FROZEN), plan(), place)
    baked(work, place, tmp_path, BuildOptions(), Part("image", "x:1"))
    seen["view"]()
    assert seen["look"].is_verbose is verbose
    assert [line.startswith(f"BUILDKIT_PROGRESS={value} has no effect") for line in lines] == [True] * said
