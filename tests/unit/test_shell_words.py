from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.core.errors import UsageError
from cannery.core.shell_words import shell_commands


def values(text: str) -> list[list[str]]:
    return [[word.value for word in command.words] for command in shell_commands(text)]


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0\r"), max_size=8), min_size=1, max_size=5))
def test_what_shlex_quotes_is_read_back(words: list[str]) -> None:
    assert values("x " + shlex.join(words)) == [["x", *words]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a \\\n  b\\\nc # d\ne#f", [["a", "bc"], ["e#f"]]),
        ('a \'b \\\n\' "c \\" \\\nd"', [["a", "b \\\n", 'c " d']]),
        ("a; b && c | d & e\n", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a > log 2>&1 < in b", [["a", "b"]]),
        ("a <your image> 8", [["a", "<your image>", "8"]]),
        ("a\r\nb \\\r\nc", [["a"], ["b", "c"]]),
        (
            "export A=1 B='2 3'\nc $A \"${B}\" '$A' ${C:-4} $D",
            [["export", "A=1", "B=2 3"], ["c", "1", "2 3", "$A", "4", "$D"]],
        ),
        ("A='-d x -d y'\nc $A \"$A\"", [["A=-d x -d y"], ["c", "-d", "x", "-d", "y", "-d x -d y"]]),
        ("c --d=/dev/n{0..2} {a,b}{1,2}", [["c", *(f"--d=/dev/n{n}" for n in range(3)), "a1", "a2", "b1", "b2"]]),
        ("c '{0..2}' ${A} ~/x --v=~/x", [["c", "{0..2}", "${A}", "$HOME/x", "--v=~/x"]]),
        ("c $(stat -c %g /dev/x) `pwd`", [["c", "$(stat -c %g /dev/x)", "`pwd`"]]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    assert values(text) == expected


def test_words_keep_how_and_where_they_are_written() -> None:
    (command,) = shell_commands("a \\\n  \"$B\" 'c d'")
    assert [(word.raw, word.line) for word in command.words] == [("a", 1), ('"$B"', 2), ("'c d'", 2)]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a \\ \nb", "line 1 ends in a backslash and a blank, which is no continuation"),
        ("a \\\n# b\n-c", "line 2 is a comment, which ends the command that the line before it continues"),
        ("a\nb", ""),
    ],
)
def test_a_command_that_ends_too_early_says_why(text: str, cut: str) -> None:
    first, second = shell_commands(text)
    assert (first.cut, second.cut) == (cut, "")


@pytest.mark.parametrize(("text", "line"), [("a 'b", 1), ('a\nb "c', 2)])
def test_an_open_quote_is_named_with_its_line(text: str, line: int) -> None:
    with pytest.raises(UsageError, match=f"a quote that begins in line {line} is not closed"):
        shell_commands(text)


@pytest.mark.parametrize(
    "text",
    [
        "docker run --device /dev/davinci{0..999}{0..999}{0..99} img",
        "c " + "{0..0}" * 40_000,
        "A=xxxxxxxx\n" + "A=$A$A\n" * 30 + "c $A",
        "A='" + ("x" * 1000 + " ") * 20 + "'\n" + "c $A\n" * 20_000,
        "A=" + "x" * 1000 + "\nc " + '"$A"' * 20_000,
    ],
)
def test_what_becomes_too_many_words_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="makes too many words for any shell"):
        shell_commands(text)


def test_what_a_shell_can_hold_is_read() -> None:
    ((first, *others),) = values("c{0..99}{0..99}")
    assert (first, len(others), others[-1]) == ("c00", 9999, "c9999")


@pytest.mark.parametrize("piece", ["-e A=1 ", "a\n", "a \\\n", "{,", "${a-", "# a\n", "'a' ", "<a", "$(", "d;"])
def test_the_time_that_a_text_takes_grows_as_its_length_does(piece: str) -> None:
    def seconds(count: int) -> float:
        begin = time.process_time()
        shell_commands(piece * count)
        return time.process_time() - begin

    short = min(seconds(2000) for _ in range(3))
    assert seconds(16_000) < 40 * short + 0.1  # 64 times of it, where each word took as long as what stands before it


def test_lines_are_counted_through_words_of_several() -> None:
    commands = shell_commands("a 'b\nc' \\\n d\n\n# e\nf")
    assert [[word.line for word in command.words] for command in commands] == [[1, 1, 3], [6]]
