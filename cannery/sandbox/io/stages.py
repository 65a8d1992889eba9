"""Makes a stage of a rendered folder without BuildKit: each RUN runs in a box, each COPY becomes a layer.

Steps are reported as BuildKit's events, so that progress, log and errors are the same as those of any build.
"""

from __future__ import annotations

import base64
import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.assemble.io.folder import write_changes, write_folder
from cannery.assemble.io.sink import GzipSink
from cannery.build.failure import failure
from cannery.build.io.buildx import write_log
from cannery.build.progress import BuildState, apply
from cannery.render.render import DOCKERFILE, NO_SECRET, SECRETS
from cannery.sandbox.box import Box, Mount, box_command
from cannery.sandbox.dockerfile import base_names, read_stages, wanted_stages
from cannery.util.addresses import redactor
from cannery.util.io.locks import own_folder
from cannery.util.io.process import cancel, end, lines, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TextIO

    from cannery.assemble.content import Made
    from cannery.assemble.io.sink import TarSink
    from cannery.build.io.buildx import View
    from cannery.build.io.secrets import Secrets
    from cannery.build.progress import Item
    from cannery.sandbox.dockerfile import Stage, Step, StepMount
    from cannery.store.io.store import Store

# Mounts of a box. Files in them are in no layer.
OF_BOXES = ("/dev", "/proc", "/run", "/sys", "/tmp")  # noqa: S108 - paths in an image
# Files that a box mounts. If the image does not have them, the box makes empty ones.
MADE_EMPTY = ("/etc/hosts", "/etc/resolv.conf")


@dataclass(frozen=True)
class Root:
    """An image or a stage so far: unpacked layers, the lowest first, its variables, and the diff ids of new layers."""

    lowers: tuple[Path, ...]
    env: Mapping[str, str]
    layers: tuple[str, ...] = ()

    @property
    def out(self) -> Path:
        """The folder /out of a stage. Its last step has made all of it: the tools begin with an empty /out."""
        return self.lowers[-1] / "out"


@dataclass(frozen=True)
class StageRequest:
    """A request to make the stage `target` of a rendered folder.

    `existing` are stages that were made before. `base` returns the base image, for the build host's platform or the
    target's. `view` makes a view; `secrets` are as for a bake. The layers are written to `store`.
    """

    folder: Path
    target: str
    existing: Mapping[str, Root]
    base: Callable[[bool], Root]
    secrets: Secrets
    store: Store
    cache: Path
    log: Path
    view: Callable[[], View]


def make_stages(request: StageRequest) -> list[str]:
    """Make the stage of `request`; return the layers that it adds (DiffIDs, lowest first).

    They are bit for bit those that BuildKit makes of the same folder, except for layers of a package manager.

    Raises `UnableError`, and what a bake raises for a step that fails: `BuildFailedError`, `NetworkError`. After SIGINT
    and SIGTERM `KeyboardInterrupt` is raised.
    """
    stages = read_stages((request.folder / DOCKERFILE).read_text(encoding="utf-8"))
    wanted = wanted_stages(stages, request.target, request.existing)
    request.log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = stack.enter_context(own_folder(request.cache / "boxes"))
        log = stack.enter_context(request.log.open("w", encoding="utf-8", errors="replace"))
        progress = _Progress(request, log)
        stack.callback(progress.finish)
        bench = _Bench(request, scratch, progress)
        for stage in wanted:
            bench.make(stage, has_layers=stage.name in base_names(stages, request.target))
    return list(bench.made[request.target].layers)


class _Bench:
    """Makes one stage after the other."""

    def __init__(self, request: StageRequest, scratch: Path, progress: _Progress) -> None:
        self._request, self._scratch, self._progress = request, scratch, progress
        self.made = dict(request.existing)

    def make(self, stage: Stage, *, has_layers: bool) -> None:
        """Make a stage whose sources are made; with `has_layers` the layers of its steps too."""
        done = self.made.get(stage.base) or self._request.base(stage.on_build_host)
        for number, step in enumerate(stage.steps, 2):
            with self._progress.step(f"[{stage.name} {number}/{len(stage.steps) + 1}] {step.text}"):
                done = self._after(done, step, has_layers=has_layers)
        self.made[stage.name] = done

    def _after(self, done: Root, step: Step, *, has_layers: bool) -> Root:
        """Return a stage after one more step."""
        if step.env:
            return replace(done, env={**done.env, **step.env})
        if step.command:
            upper = self._run(done, step)
            layers = []
            if has_layers:
                layers.append(self._layer(lambda sink: write_changes(upper, done.lowers, _left_out(upper), sink)))
            return Root((*done.lowers, upper), done.env, (*done.layers, *layers))
        # A WORKDIR step: its folder exists already, so the layer is empty.
        folder = self.made[step.copied].out if step.copied else self._scratch / "nothing"
        return replace(done, layers=(*done.layers, self._layer(lambda sink: write_folder(folder, sink))))

    def _layer(self, write: Callable[[TarSink], Made]) -> str:
        return self._request.store.write(lambda part: write(GzipSink(part))).diff_id

    def _run(self, root: Root, step: Step) -> Path:
        """Run a step's command in a box, and return the folder with what it has changed."""
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        (folder / "mounts").mkdir()
        box = Box(
            lowers=root.lowers,
            command=("/bin/sh", "-c", step.command),
            upper=folder / "changes",
            binds=tuple(map(self._bind, (mount for mount in step.mounts if mount.kind != "tmpfs"))),
            tmpfs=tuple(mount.target for mount in step.mounts if mount.kind == "tmpfs"),
            env=root.env,
            network=step.network,
        )
        process = start(box_command(box, folder / "mounts"), os.environ, self._request.folder)
        try:
            for line in lines(process):
                self._progress.printed(line)
            code = process.wait()
        except KeyboardInterrupt:
            cancel(process)
            raise
        finally:
            end(process)
        if code:
            # BuildKit's words, by which an error knows what failed.
            raise _StepError(f'process "/bin/sh -c {step.command}" did not complete successfully: exit code: {code}')
        return folder / "changes"

    def _bind(self, mount: StepMount) -> Mount:
        source, target = self._request.folder / mount.source, mount.target
        if mount.kind == "secret":
            file = self._request.secrets.env.get(SECRETS.get(mount.id, ""), NO_SECRET)
            source, target = self._request.folder / file, f"/run/secrets/{mount.id}"
        elif mount.stage:
            source = self.made[mount.stage].lowers[-1] / mount.source.lstrip("/")
        return Mount(str(source), target, read_only=True)


def _left_out(upper: Path) -> list[str]:
    """Return the paths of a box's changes that no layer gets: its mounts, and the empty files that it mounts on."""
    empty = [path for path in MADE_EMPTY if (file := upper / path[1:]).is_file() and not file.stat().st_size]
    return [*OF_BOXES, *empty]


class _StepError(Exception):
    """A step's command failed."""


class _Progress:
    """Steps as the events of BuildKit, for the view and the log."""

    def __init__(self, request: StageRequest, log: TextIO) -> None:
        self._log, self._where = log, request.log
        self._redact = redactor(request.secrets.values)
        self._state, self._view, self._name = BuildState(), request.view(), ""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step while it runs. Raises like a bake if it fails."""
        self._name = name
        begun: Item = {"digest": name, "name": name, "started": _now()}
        self._take({"vertexes": [begun]})
        try:
            yield
        except (_StepError, OSError) as error:
            self._take({"vertexes": [{**begun, "completed": _now(), "error": str(error)}]})
            raise failure(self._state, str(self._where)) from error
        self._take({"vertexes": [{**begun, "completed": _now()}]})

    def printed(self, line: str | None) -> None:
        """Log a line of the step's output; None is a second without output."""
        if line is None:
            self._view.update(self._state)
        else:
            data = base64.b64encode(f"{line}\n".encode()).decode()
            self._take({"logs": [{"vertex": self._name, "stream": 1, "data": data, "timestamp": _now()}]})

    def _take(self, event: Item) -> None:
        self._state = apply(self._state, event, self._redact)
        write_log(self._log, self._state)
        self._view.update(self._state)

    def finish(self) -> None:
        """Leave the terminal as it was."""
        self._view.finish(self._state)


def _now() -> str:
    return datetime.now(UTC).isoformat()
