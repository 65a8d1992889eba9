"""Nothing has changed: each input and each output of a run in turn, and the runs that leave no stamp."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from factories import plan
from fake_daemon import Answer, FakeDaemon, message

from cannery import cli
from cannery.build.io import stamp as io
from cannery.build.io.stamp import Places, Stamp, read_stamp, stamp_name
from cannery.cli import is_asked
from cannery.commands import image as command
from cannery.context import Context
from cannery.errors import ExitCode
from cannery.host.io.place import EnginePlace
from cannery.util.io.files import read_json
from cannery.vocab import Arch, BaseKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS = ("image", "quickstart")
ID, TAGS = f"sha256:{'1' * 64}", ("q:1-plan", "q:1")
LINES = ("image  q:1-plan", "verify passed")


class Run:
    """A run that ended well: its checkout, its home, an engine with its image, a result of verify, a folder."""

    def __init__(self, folder: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.home, self.daemon, self.monkeypatch = folder / "checkout", folder / "home", daemon, monkeypatch
        for name in ("profiles/quickstart.yaml", "components/torch.yaml", "chips.yaml", "locks/quickstart/py3.11.txt"):
            self.write(f"checkout/images/{name}", "made up\n")
        self.write("checkout/templates/Dockerfile.j2", "FROM y\n")
        self.write("code/vocab.py", "x = 1\n")
        self.write("home/.config/pip/pip.conf", "[global]\n")
        self.write("checkout/cannery.toml", "\n")
        self.write("packages/site-packages/one", "")
        self.write("checkout/out/q/Dockerfile", "FROM x\n")
        self.write("checkout/out/q/wheels/a.whl", "wheel")
        self.write("cache/verified/1.json", "{}")
        self.write("cache/locks/q.txt", "a==1\n")
        self.write("dev/davinci0", "")
        monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
        monkeypatch.setattr(io, "NOT_OF_IMAGES", {*io.NOT_OF_IMAGES, "PYTEST_CURRENT_TEST"})
        monkeypatch.setattr(io, "PACKAGE", folder / "code")
        monkeypatch.setattr(io, "DEFAULT_SOCKET", str(folder / "docker.sock"))
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder / "packages/site-packages")])
        for name in [name for name in os.environ if name.startswith(("PIP_", "DOCKER_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(self.home / ".config"))
        monkeypatch.chdir(self.root)
        for tag in TAGS:
            self.image(tag, ID)
        places = Places(
            socket=str(daemon.socket),
            references=TAGS,
            folders=(str(self.root / "out/q"),),
            files=(str(folder / "cache/verified/1.json"), str(folder / "cache/locks")),
            host=(str(folder / "dev/davinci0"), str(folder / "dev/davinci1")),
        )
        inputs = io.inputs_now(self.root, os.environ)
        io.write_stamp(WORDS, self.root / "out", Stamp(inputs, io.outputs_now(places), places, LINES))

    def write(self, name: str, text: str) -> None:
        path = self.root.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def image(self, tag: str, found: str) -> None:
        answer = Answer([json.dumps({"Id": found}).encode()]) if found else message("no such image", 404)
        self.daemon.answers[f"GET /images/{tag}/json"] = [answer]

    def remove(self, name: str) -> None:
        (self.root.parent / name).unlink()

    def answered(self, *words: str) -> tuple[str, ...]:
        return io.stamped(words or WORDS, self.root / "out", io.inputs_now(self.root, os.environ))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with FakeDaemon(tmp_path / "d.sock") as daemon:
        yield Run(tmp_path, daemon, monkeypatch)


def test_nothing_has_changed(run: Run) -> None:
    assert run.answered() == LINES
    assert run.answered("build", "quickstart") == LINES, "the other word for the same command"


CHANGES: dict[str, Callable[[Run], object]] = {
    "variable": lambda r: r.monkeypatch.setenv("HTTPS_PROXY", "proxy"),
    "pip's variable": lambda r: r.monkeypatch.setenv("PIP_INDEX_URL", "elsewhere"),
    "variable gone": lambda r: r.monkeypatch.delenv("PATH"),
    "profile": lambda r: r.write("checkout/images/profiles/quickstart.yaml", "summary: other\n"),
    "new file of the catalog": lambda r: r.write("checkout/images/components/another.yaml", "kind: wheels\n"),
    "file of the catalog gone": lambda r: r.remove("checkout/images/chips.yaml"),
    "lock": lambda r: next((r.root / "images/locks/quickstart").iterdir()).write_text("other"),
    "patch": lambda r: r.write("checkout/images/patches/x/y/0001.patch", "---"),
    "link in the catalog": lambda r: (r.root / "images/linked").symlink_to(r.root / "templates"),
    "template": lambda r: r.write("checkout/templates/Dockerfile.j2", "FROM scratch\n"),
    "code": lambda r: r.write("code/vocab.py", "x = 2\n"),
    "new code": lambda r: r.write("code/more/io/new.py", ""),
    "program": lambda r: (r.root.parent / "code/vocab.py").chmod(0o755),
    "libraries": lambda r: r.write("packages/site-packages/two", ""),
    "another Python": lambda r: r.monkeypatch.setattr(sys, "version", "9"),
    "settings of the folder": lambda r: r.write("checkout/cannery.toml", "builder = 'x'\n"),
    "settings of the user": lambda r: r.write("home/.config/cannery/config.toml", "builder = 'x'\n"),
    "pip's file": lambda r: r.write("home/.config/pip/pip.conf", "[global]\nindex-url = x\n"),
    "pip's old file": lambda r: r.write("home/.pip/pip.conf", "[global]\n"),
    "docker's settings": lambda r: r.write("home/.docker/config.json", '{"currentContext": "other"}'),
    "the host's engine": lambda r: r.write("docker.sock", ""),
    "working folder": lambda r: r.monkeypatch.chdir(r.home),
    "image gone": lambda r: r.image(TAGS[0], ""),
    "another image": lambda r: r.image(TAGS[0], f"sha256:{'2' * 64}"),
    "alias gone": lambda r: r.image(TAGS[1], ""),
    "alias of another image": lambda r: r.image(TAGS[1], f"sha256:{'2' * 64}"),
    "engine gone": lambda r: r.remove("d.sock"),
    "no engine's answer": lambda r: r.daemon.answers.update({f"GET /images/{TAGS[0]}/json": [Answer([b"<html>"])]}),
    "result of verify gone": lambda r: r.remove("cache/verified/1.json"),
    "another result of verify": lambda r: r.write("cache/verified/1.json", '{"result": "failed"}'),
    "ad-hoc lock": lambda r: r.write("cache/locks/q.txt", "a==2\n"),
    "rendered file": lambda r: r.write("checkout/out/q/Dockerfile", "FROM y, longer\n"),
    "rendered file gone": lambda r: r.remove("checkout/out/q/wheels/a.whl"),
    "rendered file of the same size": lambda r: os.utime(r.root / "out/q/Dockerfile", (1, 1)),
    "one more file": lambda r: r.write("checkout/out/q/more", ""),
    "rendered folder gone": lambda r: (r.root / "out/q").rename(r.root / "out/r"),
    "an NPU": lambda r: r.write("dev/davinci1", ""),
    "an NPU less": lambda r: r.remove("dev/davinci0"),
    "stamp cut off": lambda r: stamp_of(r).write_text(stamp_of(r).read_text()[:-9]),
    "stamp of another form": lambda r: stamp_of(r).write_text("[]"),
    "stamp gone": lambda r: stamp_of(r).unlink(),
}


def stamp_of(run: Run) -> Path:
    (found,) = (run.root / "out/.stamps").iterdir()
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_has_changed_is_noticed(run: Run, change: Callable[[Run], object]) -> None:
    change(run)
    assert run.answered() == ()


@pytest.mark.parametrize(
    "words", [("image", "another"), ("image",), ("image", "quickstart", "--pin", "a==1"), ("image", "quickstart", "-q")]
)
def test_other_words_have_a_stamp_of_their_own(run: Run, words: tuple[str, ...]) -> None:
    assert run.answered(*words) == ()


def test_an_input_that_cannot_be_read_is_a_change(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object, **__: object) -> str:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(io, "tree_digest", unreadable)
    assert io.inputs_now(run.root, os.environ) == {}
    assert run.answered() == ()


def test_a_shells_own_variables_change_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "OLDPWD", "SHLVL", "_"):
        monkeypatch.setenv(name, "77")
    assert run.answered() == LINES


def test_the_command_answers_before_the_catalog_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "parse", lambda *_: pytest.fail("parsed"))
    assert cli.main(WORDS, run.root) == ExitCode.DONE
    told = capsys.readouterr()
    assert told.out.splitlines() == [*LINES]
    assert "--no-stamp" in told.err


def test_the_command_runs_where_it_is_asked_to(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(cli, "_call", lambda arguments, *_: asked.append(arguments.begun) or ExitCode.DONE)
    assert cli.main((*WORDS, "--no-stamp"), run.root) == ExitCode.DONE
    run.image(TAGS[1], "")
    assert cli.main(WORDS, run.root) == ExitCode.DONE
    assert asked == [{}, io.inputs_now(run.root, os.environ)]


def test_which_command_lines_are_answered() -> None:
    assert is_asked(("image", "q"))
    assert is_asked(("build", "q"))
    for words in ((), ("verify", "q"), ("image", "q", "--no-stamp"), ("q", "image")):
        assert not is_asked(words), words
    assert stamp_name(("image", "q"), "/a") != stamp_name(("image", "q"), "/b")


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"places": {"socket": ""}}', "[" * 9999])
def test_a_damaged_stamp_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "stamp.json").write_text(text)
    assert read_json(tmp_path / "stamp.json", read_stamp) is None
    assert read_json(tmp_path / "none.json", read_stamp) is None


# Which runs leave a stamp


class Ended:
    """A run of `image` that ended well, as `keep_stamp` sees it."""

    def __init__(self, run: Run) -> None:
        made = plan()
        base = replace(made.recipe.base, kind=BaseKind.STANDIN)
        self.plan = replace(made, recipe=replace(made.recipe, base=base))
        self.context = Context(run.root, run.root.parent / "cache", {}, Arch.AMD64, is_terminal=False)
        self.engine = SimpleNamespace(host=f"unix://{run.daemon.socket}", builder="default")
        self.arguments = argparse.Namespace(words=WORDS, begun=io.inputs_now(run.root, os.environ))
        self.given: dict[str, Any] = {}
        run.write(f"cache/verified/{'1' * 24}-x.json", '{"result": "passed"}')
        stamp_of(run).unlink()

    def keep(self, image_id: str = ID) -> None:
        access = SimpleNamespace(managers=(), folders=(), mounts=(), network=())
        chips = {self.plan.recipe.target.chip: access}
        work: Any = SimpleNamespace(
            plan=self.plan,
            context=self.context,
            place=EnginePlace(self.engine, None, {}),  # type: ignore[arg-type]
            catalog=SimpleNamespace(chips=chips),
        )
        command.keep_stamp(self.arguments, work, image_id, TAGS, "image  q\nverify  passed")


@pytest.fixture
def ended(run: Run) -> Ended:
    return Ended(run)


def test_a_run_that_ended_well_is_remembered(run: Run, ended: Ended) -> None:
    ended.keep()
    assert run.answered() == ("image  q", "verify  passed")
    run.write(f"cache/verified/{'1' * 24}-x.json", "")
    assert run.answered() == ()


def of_base(ended: Ended, kind: BaseKind) -> None:
    recipe = ended.plan.recipe
    ended.plan = replace(ended.plan, recipe=replace(recipe, base=replace(recipe.base, kind=kind)))


UNCOVERED: dict[str, Callable[[Ended], object]] = {
    "json": lambda e: setattr(e.arguments, "json", True),
    "verbose": lambda e: setattr(e.arguments, "verbose", True),
    "no cache": lambda e: setattr(e.arguments, "no_cache", True),
    "not verified": lambda e: setattr(e.arguments, "no_verify", True),
    "verified again": lambda e: setattr(e.arguments, "verify_again", True),
    "pulled": lambda e: setattr(e.arguments, "reuse", True),
    "builder": lambda e: setattr(e.arguments, "builder", "mine"),
    "inputs unknown": lambda e: setattr(e.arguments, "begun", {}),
    "forced": lambda e: setattr(e, "plan", replace(e.plan, forced=("x",))),
    "base of a registry": lambda e: of_base(e, BaseKind.REAL),
    "own catalog": lambda e: setattr(e, "context", replace(e.context, own=Path("/x"))),
    "own wheels": lambda e: setattr(e, "context", replace(e.context, wheelhouse=Path("/x"))),
    "own repositories": lambda e: setattr(e, "context", replace(e.context, mirror=Path("/x"))),
    "own patches": lambda e: setattr(e, "context", replace(e.context, patches=Path("/x"))),
    "own tree": lambda e: setattr(e, "context", replace(e.context, local={"x": Path("/x")})),
    "another machine": lambda e: setattr(e.engine, "host", "tcp://elsewhere:2375"),
    "docker context": lambda e: setattr(e.engine, "builder", "other"),
}


@pytest.mark.parametrize("change", UNCOVERED.values(), ids=UNCOVERED)
def test_what_no_digest_covers_leaves_no_stamp(run: Run, ended: Ended, change: Callable[[Ended], object]) -> None:
    change(ended)
    ended.keep()
    assert list((run.root / "out/.stamps").iterdir()) == []


def test_an_image_without_a_result_leaves_no_stamp(run: Run, ended: Ended) -> None:
    ended.keep(f"sha256:{'2' * 64}")
    run.remove(f"cache/verified/{'1' * 24}-x.json")
    ended.keep()
    assert list((run.root / "out/.stamps").iterdir()) == []
