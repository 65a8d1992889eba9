"""The full log of a build: text for people, each line with its time and stage, written as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.build.progress import Status

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from cannery.build.progress import BuildState


class BuildLog:
    """Writes what each new state brought: steps that began or ended, lines they printed, what bake printed.

    The state is already free of secrets (`apply` redacts). Every update is flushed, so that a killed run leaves a
    log up to its last moment.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", errors="replace")
        self._logged: dict[str, Status] = {}
        self._other: tuple[str, ...] = ()
        self._warnings = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, state: BuildState) -> None:
        """Write what `state` brought since the last call. Call it once for every event."""
        names = {key: step.name.stage for key, step in state.steps.items()}
        begun = [step for step in state.steps.values() if self._begun(step.key, step.status)]
        lines = [(step.key, f"--- {step.name.instruction}") for step in begun]
        lines += state.fresh
        for step in state.steps.values():
            ended = step.status not in {Status.WAITING, Status.RUNNING}
            # A vertex that ends a second time (BuildKit probes, then works) is news only when it failed.
            logged = self._logged.get(step.key)
            if ended and (logged is Status.RUNNING or (step.error and logged is not step.status)):
                self._logged[step.key] = step.status
                error = f": {step.error}" if step.error else ""
                lines.append((step.key, f"--- {step.status}{error}"))
        text = [f"{state.seconds:8.2f} [{names[key]}] {line}\n" for key, line in lines]
        if state.other != self._other:
            text.append(f"{state.seconds:8.2f} [bake] {state.other[-1]}\n")
            self._other = state.other
        text += [f"{state.seconds:8.2f} [warning] {line}\n" for line in state.warnings[self._warnings :]]
        self._warnings = len(state.warnings)
        if text:
            self._file.write("".join(text))
            self._file.flush()

    def note(self, text: str) -> None:
        """Write a line of Cannery's own."""
        self._file.write(f"{'':8} [cannery] {text}\n")
        self._file.flush()

    def _begun(self, key: str, status: Status) -> bool:
        new = status is not Status.WAITING and key not in self._logged
        if new:
            self._logged[key] = Status.RUNNING
        return new
