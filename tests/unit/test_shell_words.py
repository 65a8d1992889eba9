from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.errors import UsageError
from cannery.lint.shell_words import shell_commands

OUTPUTS = ['$(cd $(dirname "$0") && pwd):/w', '$(cd "$(dirname x)"; pwd)/a b']
LOOP = "$(for i in {0..3}; do echo -d$i; done)"


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
        ('c $(cd $(dirname "$0") && pwd):/w "$(cd "$(dirname x)"; pwd)/a b"', [["c", *OUTPUTS]]),
        (
            "c $(for i in {0..3}; do echo -d$i; done) --d='/n{0..3}' -e\"{a,b}\"",
            [["c", LOOP, "--d=/n{0..3}", "-e{a,b}"]],
        ),
        ("c -v <a dir>/b:/c <x", [["c", "-v", "<a dir>/b:/c"]]),
        ("c {0..6..3} {3..0..2}", [["c", "0", "3", "6", "3", "1"]]),
        ('A=\nc $A "$A" x', [["A="], ["c", "", "x"]]),
        ("A='-x $B y'\nc $A", [["A=-x $B y"], ["c", "-x", "$B", "y"]]),
        # what only a shell knows stays as it is written
        ("A=`f`\nB=$(g)\nc $A $B", [["A=`f`"], ["B=$(g)"], ["c", "$A", "$B"]]),
        ('c ${A:-} ${A:---x y} "${A:-}" ${A:-x} ${A-}', [["c", "${A:-}", "${A:---x y}", "", "x", "${A-}"]]),
        ("A=1\nA+=2; B+=1\nc $A $B", [["A=1"], ["A+=2"], ["B+=1"], ["c", "12", "$B"]]),
        (
            "alias r='c -x \"a b\"' q=z\nr d; r",
            [["alias", 'r=c -x "a b"', "q=z"], ["c", "-x", "a b", "d"], ["c", "-x", "a b"]],
        ),
        ("local -r A=1\nc $A", [["local", "-r", "A=1"], ["c", "1"]]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("block", "within", "behind"),
    [
        ('for i in 0 1; do\n A="$A -d$i"\n c $A\ndone', ["-d$i"], "$A"),
        ("if [ x ]; then A=1; c $A; fi", ["1"], "$A"),
        ("case $X in\n a) A=1 ;;\nesac\nc $A", ["$A"], "$A"),
        ("while read l; do if x; then A=1; fi; c $A; done", ["$A"], "$A"),
        ("f() {\n A=1\n}\nc $A", ["1"], "1"),
    ],
)
def test_what_a_loop_or_a_branch_sets_is_known_within_it_alone(block: str, within: list[str], behind: str) -> None:
    found = [words[words.index("c") + 1 :] for words in values(f"A=\n{block}\nc $A") if "c" in words]
    assert found == [within, [behind]]


def test_words_keep_how_and_where_they_are_written() -> None:
    (command,) = shell_commands("a \\\n  \"$B\" 'c d'")
    assert [(word.raw, word.line) for word in command.words] == [("a", 1), ('"$B"', 2), ("'c d'", 2)]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("a \\ \nb", "line 1 ends in a backslash and a blank, which is no continuation"),
        ("a \\  # b\n-c", "line 1 has a comment behind its backslash, which is no continuation then"),
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
