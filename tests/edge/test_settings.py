"""Settings of the machine: where they are read, and that a mirror changes no plan, tag or layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from factories import catalog, compatibility, plan
from git_trees import git_cache, hosts
from stub_registry import REPOSITORY, TAG, StubRegistry

from cannery import cli
from cannery.base.io.find import Search, find_base
from cannery.commands.image import _builder
from cannery.context import read_context
from cannery.engine.io.registry import Access, Login
from cannery.errors import ExitCode, FindingsError, UsageError
from cannery.lock.io.indexes import bound_places
from cannery.plan.make import base_need, on_base
from cannery.plan.manifest import labels, manifest_text
from cannery.recipe.recipe import Options
from cannery.render.render import render
from cannery.settings import Settings, of_environment, with_mirrors
from cannery.util.addresses import environment_secrets, mirrored
from cannery.util.io.pip_settings import PipSettings

if TYPE_CHECKING:
    from argparse import Namespace

    from cannery.base.real import BaseImage
    from cannery.plan import Plan

ROOT = Path(__file__).resolve().parent.parent.parent
# As `factories.catalog` has it.
OWN = "registry.example"


class Machine:
    """A machine whose user's file, working folder and variables a test writes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        self.work, self.home = folder / "work", folder / "home/.config/cannery"
        for path in (self.work, self.home):
            path.mkdir(parents=True)
        monkeypatch.chdir(self.work)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "home/.config"))

    def user(self, text: str) -> None:
        (self.home / "config.toml").write_text(text)

    def here(self, text: str) -> None:
        (self.work / "cannery.toml").write_text(text)

    @property
    def settings(self) -> Settings:
        return read_context(ROOT).settings


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


# Where a value is read


def test_a_variable_goes_before_the_folders_file_and_that_before_the_users(machine: Machine) -> None:
    machine.user('registry = "user.example/a"\nbuilder = "mine"\n[mirrors.registry]\n"quay.io" = "user.example/quay"\n')
    machine.here('registry = "folder.example/a"\n[mirrors.registry]\n"docker.io" = ["one.example", "two.example"]\n')
    found = machine.settings
    assert (found.text("registry"), found.text("builder"), found.text("catalog")) == ("folder.example/a", "mine", "")
    assert found.mirrors("registry") == {"quay.io": ("user.example/quay",), "docker.io": ("one.example", "two.example")}
    machine.patch.setenv("CANNERY_REGISTRY", "variable.example/a")
    machine.patch.setenv("CANNERY_MIRROR_REGISTRY", "quay.io=a.example/q quay.io=b.example/q")
    found = machine.settings
    assert found.text("registry") == "variable.example/a"
    assert found.mirrors("registry")["quay.io"] == ("a.example/q", "b.example/q")
    origins = {name: origin for name, _, origin in found.rows("/c")}
    assert origins["registry"] == "CANNERY_REGISTRY"
    assert origins["builder"] == str(machine.home / "config.toml")
    assert origins["mirrors.registry.docker.io"] == "cannery.toml"
    assert origins["wheelhouse"] == "not set"


def test_a_folder_in_a_file_is_beside_the_file_and_an_option_goes_first(machine: Machine) -> None:
    for name in ("wheels", "other", "git"):
        (machine.home / name).mkdir()
    machine.user('wheelhouse = "wheels"\ngit-mirror = "git"\n')
    context = read_context(ROOT)
    assert (context.wheelhouse, context.mirror) == (machine.home / "wheels", machine.home / "git")
    assert read_context(ROOT, {"wheelhouse": str(machine.home / "other")}).wheelhouse == machine.home / "other"


def test_the_cache_may_be_set_in_a_file(machine: Machine) -> None:
    machine.patch.delenv("CANNERY_CACHE", raising=False)
    machine.here('cache = "~/somewhere"\n')
    assert read_context(ROOT).cache == Path.home() / "somewhere"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("registry = \n", "not TOML"),
        ('registri = "r.example/a"\n', "'registri' is not a setting"),
        ("registry = 3\n", "registry is not a text"),
        ('registry = ""\n', "registry is not a text"),
        ('mirrors = "x"\n', "mirrors is not a table"),
        ('[mirrors.regist]\n"quay.io" = "x.example"\n', "mirrors.regist is not a table of mirrors"),
        ('[mirrors.registry]\n"quay.io" = 3\n', "neither an address nor a list"),
        ('[mirrors.registry]\n"quay.io" = []\n', "neither an address nor a list"),
        ('[mirrors.registry]\n"quay" = "x.example"\n', "does not begin with the host"),
        ('[mirrors.registry]\n"quay.io" = "https://x.example"\n', "has no scheme"),
        ('[mirrors.registry]\n"quay.io" = "x.example/A"\n', "not a registry or a repository"),
        ('[mirrors.registry]\n"quay.io" = "x.example/a:1"\n', "has a tag"),
        ('[mirrors.index]\npytorch-cpu = "x.example/simple"\n', "has no scheme"),
        ('[mirrors.index]\ndefault = "https://x.example/a-1-py3-none-any.whl"\n', "a folder named by WHEELHOUSE"),
        ('[mirrors.pages]\npytorch-cpu = "file:///x/a-1-py3-none-any.whl"\n', "a folder named by WHEELHOUSE"),
        ('[mirrors.git]\ngithub = "https://x.example/mirror"\n', "has to contain {repository}"),
        ('[mirrors.system]\nubuntu = "https://x.example/ubuntu"\n', "not an http address"),
        ('[mirrors.system]\n"http://a.example" = "https://x.example/a;b"\n', "not an http address"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_ends_with_2(machine: Machine, text: str, words: str) -> None:
    machine.here(text)
    with pytest.raises(UsageError) as caught:
        read_context(ROOT)
    assert words in caught.value.what
    assert caught.value.where == "cannery.toml"
    assert caught.value.code is ExitCode.USAGE


def test_a_file_that_cannot_be_read_is_wrong_use(machine: Machine) -> None:
    (machine.work / "cannery.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        read_context(ROOT)
    (machine.work / "cannery.toml").unlink()
    (machine.work / "cannery.toml").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        read_context(ROOT)


def test_a_variable_of_another_form_is_named(machine: Machine) -> None:
    machine.patch.setenv("CANNERY_MIRROR_GIT", "https://me:secret@x.example")
    with pytest.raises(UsageError) as caught:
        read_context(ROOT)
    assert caught.value.where == "CANNERY_MIRROR_GIT"
    assert "secret" not in str(caught.value)


def test_a_mirror_of_what_the_catalog_does_not_have_is_an_error(machine: Machine) -> None:
    machine.here('[mirrors.index]\npytorch = "https://x.example/simple"\n')
    with pytest.raises(UsageError) as caught:
        read_context(ROOT).catalog()
    assert (caught.value.where, "pytorch-cpu" in caught.value.hint) == ("cannery.toml", True)


def shown(machine: Machine, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert cli.main(("show", "--settings", *words), ROOT) == 0
    found = capsys.readouterr()
    assert "hidden" not in found.err
    return found.out


def test_show_settings_prints_each_value_and_where_it_came_from(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.here('builder = "big"\n[mirrors.index]\npytorch-cpu = "https://me:pass%2Fword@x.example/whl/cpu"\n')
    machine.patch.setenv("CANNERY_REGISTRY", "r.example/team")
    machine.patch.setenv("https_proxy", "http://who:hidden@proxy.example:3128")
    text = shown(machine, capsys)
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert lines["registry"] == ["r.example/team", "CANNERY_REGISTRY"]
    assert lines["builder"] == ["big", "cannery.toml"]
    assert lines["cache"][1:] in (["CANNERY_CACHE"], ["the", "default"])
    assert lines["mirrors.index.pytorch-cpu"] == ["https://x.example/whl/cpu", "cannery.toml"]
    assert lines["https_proxy"] == ["http://proxy.example:3128", "https_proxy"]
    for secret in ("pass%2Fword", "pass/word", "hidden"):
        assert secret not in text
    rows = json.loads(shown(machine, capsys, "--json"))
    assert {"name": "builder", "value": "big", "from": "cannery.toml"} in rows


def test_show_needs_a_profile_or_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("show",), ROOT) == 2
    assert "PROFILE is missing" in capsys.readouterr().err


def test_the_registry_of_the_settings_is_the_one_of_push(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(("push", "quickstart"), ROOT) == 2
    assert "REGISTRY is not set" in capsys.readouterr().err
    machine.here('registry = "Upper.example/TEAM"\n')
    assert cli.main(("push", "quickstart"), ROOT) == 2
    assert "not a host[:port][/path] in lower case" in capsys.readouterr().err


def test_a_mirror_of_the_environment_is_no_wheel() -> None:
    with pytest.raises(UsageError, match="a folder named by WHEELHOUSE") as caught:
        of_environment({"CANNERY_MIRROR_INDEX": "default=https://x.example/a-1-py3-none-any.whl"})
    assert caught.value.where == "CANNERY_MIRROR_INDEX"


def test_passwords_in_mirrors_of_variables_are_secret_before_anything_is_read() -> None:
    env = {"CANNERY_MIRROR_INDEX": "default=https://me:top-secret@x.example/simple"}
    assert "top-secret" in environment_secrets(env)
    assert "also" in environment_secrets({}, ("https://also@x.example",))


# A mirror is transport


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("quay.io/ascend/cann:1", ("m.example/quay/ascend/cann:1",)),
        (f"quay.io/ascend/cann:1@sha256:{'a' * 64}", (f"m.example/quay/ascend/cann:1@sha256:{'a' * 64}",)),
        (f"quay.io/ascend/cann@sha256:{'a' * 64}", (f"m.example/quay/ascend/cann@sha256:{'a' * 64}",)),
        ("quay.io/ascend/cann", ("m.example/quay/ascend/cann:latest",)),
        ("quay.io/special/image:1", ("s.example/x/image:1", "t.example/image:1")),
        ("quay.io/specially/image:1", ("m.example/quay/specially/image:1",)),
        ("debian:12", ("hub.example/library/debian:12",)),
        ("other.example/a:1", ()),
    ],
)
def test_where_a_mirror_has_an_image(reference: str, expected: tuple[str, ...]) -> None:
    mirrors = {
        "quay.io": ["m.example/quay"],
        "quay.io/special": ["s.example/x", "t.example"],
        "docker.io": ["hub.example"],
    }
    assert mirrored(reference, mirrors) == expected


def found_at(mirrors: list[StubRegistry], said: list[str], wanted: Plan | None = None, **more: Any) -> BaseImage:  # noqa: ANN401
    """The base of a plan, on a machine with mirrors of its registry."""
    access = Access(PipSettings(), lambda _: Login())
    where = {OWN: [f"{stub.host}/{REPOSITORY.partition('/')[0]}" for stub in mirrors]}
    return find_base(base_need(wanted or plan()), Search(access, lambda: None, said.append, mirrors=where, **more))


def test_three_mirrors_of_one_base_give_one_tag_one_manifest_and_one_dockerfile() -> None:
    made, files = [], []
    wanted = plan()
    tag = wanted.base_reference.rpartition(":")[2]
    for _ in range(3):
        with StubRegistry() as mirror:
            mirror.add()
            mirror.manifests[tag] = mirror.manifests[TAG]
            said: list[str] = []
            base = found_at([mirror], said)
            on = on_base(wanted, base.reference, base.digest, base.source)
            assert (base.reference, base.source) == (f"{OWN}/cann:{tag}", f"{mirror.repository}:{tag}")
            assert mirror.host in said[0]
            made.append(on)
            files.append(render(on, inputs_templates(), compatibility()))
            bake = json.loads(files[-1].pop("docker-bake.json"))
            contexts = bake["target"]["image"]["contexts"]
            assert contexts == {on.base_reference: f"docker-image://{base.source}@{base.digest}"}
    assert len({one.reference for one in made}) == len({json.dumps(labels(one)) for one in made}) == 1
    assert len({manifest_text(one, compatibility()) for one in made}) == 1
    assert made[0].layers == made[1].layers == made[2].layers
    assert files[0] == files[1] == files[2]
    assert f"FROM {OWN}/cann:{tag}@sha256:" in files[0]["Dockerfile"]
    manifest = json.loads(manifest_text(made[0], compatibility()))
    assert manifest["base"]["reference"] == f"{OWN}/cann:{tag}"


def inputs_templates() -> dict[str, str]:
    return read_context(ROOT).templates


def test_without_a_mirror_the_bake_file_has_no_context() -> None:
    rendered = render(on_base(plan(), "registry.example/cann:1", None), inputs_templates(), compatibility())
    assert "contexts" not in json.loads(rendered["docker-bake.json"])["target"]["image"]


def test_a_mirror_that_fails_is_reported_and_the_next_one_is_asked() -> None:
    tag = plan().base_reference.rpartition(":")[2]
    with StubRegistry(status=503) as first, StubRegistry() as second:
        second.add()
        second.manifests[tag] = second.manifests[TAG]
        said: list[str] = []
        assert found_at([first, second], said).source == f"{second.repository}:{tag}"
        assert said[0].startswith(f"base: {first.repository}:{tag} is not used: ")


def test_a_mirror_with_another_image_than_the_locked_one_is_an_error_that_names_both() -> None:
    with StubRegistry() as mirror:
        has = mirror.add()
        locked = f"sha256:{'ab' * 32}"
        wanted = plan(Options(base=f"{OWN}/cann:{TAG}@{locked}"))
        with pytest.raises(FindingsError) as caught:
            found_at([mirror], [], wanted)
        assert has in caught.value.what
        assert locked in caught.value.what
        assert f"{mirror.repository}:{TAG}" in caught.value.what
        good = plan(Options(base=f"{OWN}/cann:{TAG}@{has}"))
        assert found_at([mirror], [], good).digest == has


def test_mirrors_of_indexes_and_git_hosts_come_before_what_the_catalog_has(machine: Machine) -> None:
    before = catalog()
    index, host = next(iter(before.indexes)), next(iter(before.hosts))
    machine.here(
        f'[mirrors.index]\n{index} = "https://a.example/simple"\n'
        f'[mirrors.pages]\n{index} = "https://b.example/page"\n'
        f'[mirrors.git]\n{host} = "https://c.example/{{repository}}.git"\n'
    )
    after = with_mirrors(before, machine.settings)
    places = bound_places(index, after.indexes)
    assert [(place.url, place.links) for place in places][:2] == [
        ("https://b.example/page", True),
        ("https://a.example/simple", False),
    ]
    assert [place.url for place in places[2:]] == [place.url for place in bound_places(index, before.indexes)]
    assert after.hosts[host].mirrors == ("https://c.example/{repository}.git",)
    assert after.hosts[host].url == before.hosts[host].url
    assert with_mirrors(before, Settings()) == before


def test_a_mirror_of_the_default_index_is_pips_main_one(machine: Machine) -> None:
    machine.here('[mirrors.index]\ndefault = "https://me:word@a.example/simple"\n')
    pip = read_context(ROOT).pip
    assert pip.index_url == "https://me:word@a.example/simple"
    assert "word" in pip.credentials()


def test_a_git_mirror_is_asked_first_and_its_failure_is_reported(tmp_path: Path) -> None:
    from git_trees import Repo, served  # noqa: PLC0415 - these two alone

    repo = Repo(tmp_path / "work")
    commit = repo.commit({"a": "1"})
    served(repo, tmp_path / "mirror", "owner/name.git")
    known = {
        name: one.model_copy(update={"mirrors": (f"file://{tmp_path}/{folder}/{{repository}}.git",)})
        for folder, (name, one) in zip(
            ("mirror", "nowhere"),
            hosts(**dict.fromkeys(("good", "bad"), f"file://{tmp_path}/host/{{repository}}.git")).items(),
            strict=True,
        )
    }
    cache, said = git_cache(tmp_path / "cache", known)
    assert cache.obtain("it", commit, {"good": "owner/name"}).repository == "good/owner/name"
    assert not any("another place" in line for line in said)
    served(repo, tmp_path / "host", "owner/name.git")
    other, said = git_cache(tmp_path / "cache2", known)
    assert other.obtain("it", commit, {"bad": "owner/name"}).repository == "bad/owner/name"
    assert any("a mirror of bad does not have it" in line for line in said)


@pytest.mark.parametrize("origin", ["file", "variable", "buildx"])
def test_a_builder_that_is_only_set_is_reported_and_not_used_with_the_standin(machine: Machine, origin: str) -> None:
    if origin == "file":
        machine.here('builder = "far"\n')
    else:
        machine.patch.setenv({"variable": "CANNERY_BUILDER", "buildx": "BUILDX_BUILDER"}[origin], "far")
    said: list[str] = []
    context = replace(read_context(ROOT))
    object.__setattr__(context, "say", said.append)
    arguments: Any = type("Arguments", (), {"builder": None})()
    assert _builder(_as(arguments), context, plan()) == "far"
    assert said == []
    assert _builder(_as(arguments), context, plan(Options(base="standin"))) is None
    assert said[0].startswith("builder far is not used")
    arguments.builder = "near"
    assert _builder(_as(arguments), context, plan()) == "near"
    with pytest.raises(UsageError, match="BUILDER"):
        _builder(_as(arguments), context, plan(Options(base="standin")))


def _as(arguments: Any) -> Namespace:  # noqa: ANN401
    found: Namespace = arguments
    return found
