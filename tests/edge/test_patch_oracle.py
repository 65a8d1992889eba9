"""Our way of applying patches, held against the tools that made the rules.

`git apply` always; GNU patch, whose search for a place ours is, where it is installed.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cannery.patches.apply import FileResult, HunkResult, Outcome, apply_file
from cannery.patches.patch_text import parse_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CASES = 60
QUIET = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
NAME = "pkg/x.txt"


@dataclass(frozen=True)
class Case:
    """A patch as git writes it, and a file that is nearly that which it was made from."""

    patch: bytes
    file: bytes

    def with_fuzz(self, fuzz: int) -> FileResult:
        [patch] = parse_patch("made", self.patch).files
        return apply_file(patch, self.file, fuzz=fuzz, anywhere=True)


def run(folder: Path, *command: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=folder, input=data, capture_output=True, env=QUIET, check=False)


def git_diff(folder: Path, before: bytes, after: bytes) -> bytes:
    """The patch of `NAME` from `before` to `after`, b"" when they are equal."""
    for side, data in (("a", before), ("b", after)):
        file = folder / side / NAME
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    made = run(folder, "git", "diff", "--no-index", "--no-prefix", f"a/{NAME}", f"b/{NAME}")
    assert made.returncode in {0, 1}, made.stderr
    return made.stdout


def edited(chance: random.Random, lines: list[str], edits: int, span: range, words: list[str]) -> list[str]:
    """`lines` with so many insertions, deletions and replacements of one or two lines, at places in `span`."""
    lines = list(lines)
    for _ in range(edits):
        place = chance.choice(span) if len(span) else 0
        new = [chance.choice(words) for _ in range(chance.choice((0, 1, 1, 2)))]
        lines[place : place + chance.choice((0, 1, 2))] = new
    return lines


def text(chance: random.Random, lines: list[str], end: str = "\n") -> bytes:
    """The lines as a file; one of four has no line end at its end."""
    data = end.join(lines) + end if lines else ""
    return (data.removesuffix(end) if chance.random() < 0.25 else data).encode()


def unique_case(chance: random.Random, folder: Path) -> Case:
    """A file in which each line stands once and whose ends stay, so that a hunk fits in one place and by one rule."""
    words = [f"word {chance.random()}" for _ in range(40)]
    lines = [f"{number} {chance.random()}" for number in range(60)]
    end = chance.choice(("\n", "\r\n"))
    before = text(chance, lines, end)
    after = end.join(edited(chance, lines, chance.randint(1, 4), range(8, 46), words)).encode() + end.encode()
    after = after if before.endswith(b"\n") else after.removesuffix(end.encode())
    drifted = edited(chance, lines, chance.randint(0, 2), range(8, 46), [f"drift {chance.random()}" for _ in range(9)])
    return Case(git_diff(folder, before, after), end.join(drifted).encode() + before[len(before.rstrip(b"\r\n")) :])


def repeated_case(chance: random.Random, folder: Path) -> Case:
    """A file of few different lines, edited and drifted anywhere: hunks fit in many places, or at an end only."""
    words = ["", "a", "b", "c", "d", "e"]
    lines = [chance.choice(words) for _ in range(chance.randint(8, 40))]
    after = edited(chance, lines, chance.randint(1, 5), range(len(lines)), words)
    drifted = edited(chance, lines, chance.randint(0, 3), range(len(lines)), words)
    return Case(git_diff(folder, text(chance, lines), text(chance, after)), text(chance, drifted))


def cases(
    make: Callable[[random.Random, Path], Case], folder: Path, first: int = 0
) -> Iterator[tuple[int, Case, Path]]:
    """Seed, case, and an empty folder with its file, for each seed whose edits change anything."""
    for seed in range(first, first + CASES):
        case = make(random.Random(seed), folder / "sides")
        if case.patch:
            home = folder / str(seed)
            (home / NAME).parent.mkdir(parents=True)
            (home / NAME).write_bytes(case.file)
            yield seed, case, home


def test_what_git_apply_does(tmp_path: Path) -> None:
    met: Counter[Outcome] = Counter()
    for seed, case, home in cases(unique_case, tmp_path):
        told = run(home, "git", "apply", "--whitespace=nowarn", "-", data=case.patch)
        ours = case.with_fuzz(0)
        outcomes = [hunk.outcome for hunk in ours.hunks]
        # Git refuses a patch of which a part is in the file already.
        applies = ours.ok and Outcome.ALREADY not in outcomes
        assert applies == (told.returncode == 0), (seed, told.stderr)
        assert not applies or ours.after == (home / NAME).read_bytes(), seed
        met.update(outcomes)
    assert set(met) - {Outcome.ALREADY} == {Outcome.APPLIES, Outcome.OFFSET, Outcome.CONFLICT}
    assert min(met[one] for one in (Outcome.APPLIES, Outcome.OFFSET, Outcome.CONFLICT)) > CASES / 6


_SAID = re.compile(
    r"Hunk #(?P<number>\d+) (?P<what>succeeded|FAILED) at (?P<line>\d+)"
    r"(?: with fuzz (?P<fuzz>\d+))?(?: \(offset (?P<offset>-?\d+) lines?\))?\."
)


@pytest.mark.skipif(shutil.which("patch") is None, reason="GNU patch is not installed; git apply is the oracle then")
@pytest.mark.parametrize("fuzz", [0, 1, 2])
def test_what_gnu_patch_does(fuzz: int, tmp_path: Path) -> None:
    met: Counter[Outcome] = Counter()
    for seed, case, home in cases(repeated_case, tmp_path, 1000):
        told = run(home, "patch", "-p1", "-N", f"-F{fuzz}", "--no-backup-if-mismatch", "-r", "-", data=case.patch)
        ours, said = case.with_fuzz(fuzz), told.stdout.decode()
        met.update(hunk.outcome for hunk in ours.hunks)
        first, *others = (hunk.outcome for hunk in ours.hunks)
        # Patch asks whether it was there before of the first hunk alone, and then leaves the whole file.
        assert (first is Outcome.ALREADY) == ("previously applied" in said), (seed, said)
        if Outcome.ALREADY in {first, *others}:
            continue
        assert [seen(hunk) for hunk in ours.hunks] == told_of(said, ours), (seed, said)
        assert ours.ok == (told.returncode == 0), (seed, said)
        assert ours.after == ((home / NAME).read_bytes() if ours.ok else None), seed
    assert set(met) == set(Outcome) - ({Outcome.FUZZ} if not fuzz else set())


def seen(hunk: HunkResult) -> tuple[int | None, int, int] | None:
    """Line, fuzz and offset of a hunk that fits."""
    return None if hunk.outcome is Outcome.CONFLICT else (hunk.line, hunk.fuzz, hunk.offset)


def told_of(said: str, ours: FileResult) -> list[tuple[int | None, int, int] | None]:
    """The same of all hunks by the words of patch, which says nothing of one that goes where it should."""
    theirs = {int(found["number"]): found for found in _SAID.finditer(said)}
    told: list[tuple[int | None, int, int] | None] = []
    for hunk in ours.hunks:
        found = theirs.get(hunk.hunk.number)
        if found is None:
            told.append((hunk.hunk.new_start if all(one is not None for one in told) else hunk.line, 0, 0))
        elif found["what"] == "FAILED":
            told.append(None)
        else:
            told.append((int(found["line"]), int(found["fuzz"] or 0), int(found["offset"] or 0)))
    return told
