from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.errors import UsageError
from cannery.lint import command as shell
from cannery.lint.command import ShellText

OUTPUTS = ['$(cd $(dirname "$0") && pwd):/w', '$(cd "$(dirname x)"; pwd)/a b']
LOOP = "$(for i in {0..3}; do echo -d$i; done)"


def values(text: str) -> list[list[str]]:
    return [list(command.words) for command in ShellText(text).commands]


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
        ("cat <<'EOF' > f\ndon't\nEOF\nb 'c'", [["cat"], ["b", "c"]]),
        ("a <your image> 8", [["a", "<your image>", "8"]]),
        ("a\r\nb \\\r\nc", [["a"], ["b", "c"]]),
        (
            "export A=1 B='2 3'\nc $A \"${B}\" '$A' ${C:-4} $D",
            [["export", "A=1", "B=2 3"], ["c", "1", "2 3", "$A", "${C:-4}", "$D"]],
        ),
        ("A='-d x -d y'\nc $A \"$A\"", [["A=-d x -d y"], ["c", "-d", "x", "-d", "y", "-d x -d y"]]),
        ("c '{0..2}' ${A} ~/x --v=~/x", [["c", "{0..2}", "${A}", "~/x", "--v=~/x"]]),
        ("c $(stat -c %g /dev/x) `pwd`", [["c", "$(stat -c %g /dev/x)", "`pwd`"]]),
        ('c $(cd $(dirname "$0") && pwd):/w "$(cd "$(dirname x)"; pwd)/a b"', [["c", *OUTPUTS]]),
        ("c $(for i in {0..3}; do echo -d$i; done) --d='/n{0..3}'", [["c", LOOP, "--d=/n{0..3}"]]),
        ("c -v <a dir>/b:/c <x", [["c", "-v", "<a dir>/b:/c"]]),
        ('A=\nc $A "$A" x', [["A="], ["c", "", "x"]]),
        # what only a shell knows stays as it is written
        ("A=`f`\nB=$(g)\nc $A $B", [["A=`f`"], ["B=$(g)"], ["c", "$A", "$B"]]),
        ('c ${A:-} ${A:---x y} "${A:-x}"', [["c", "${A:-}", "${A:---x y}", "${A:-x}"]]),
        ("A=1\nA+=2; B+=1\nc $A $B", [["A=1"], ["A+=2"], ["B+=1"], ["c", "$A", "$B"]]),
        ("local -r A=1\nc $A", [["local", "-r", "A=1"], ["c", "1"]]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_words(text: str, expected: list[list[str]]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('A=(-a "b c" # why\n  --d)\nc "${A[@]}" x', ["-a", "b c", "--d", "x"]),
        ('declare -a A=(-a)\nc ${A[*]} "${B[@]}"', ["-a", "${B[@]}"]),
        ('I=i:1\nA=(-a "$I" $J -v $(pwd):/w)\nc "${A[@]}"', ["-a", "i:1", "$J", "-v", "$(pwd):/w"]),
        ('A=("b c" d)\nc "${A[@]}"', ["b c", "d"]),
        ('A=()\nc "${A[@]}" x', ["x"]),
        # what is set twice may be either
        ('A=(-a)\nif x; then\n  A+=(-b)\nfi\nc "${A[@]}"', ["${A[@]}"]),
        ('A=(-a)\nA=("${A[@]}" -b)\nc "${A[@]}"', ["${A[@]}"]),
        ('if x; then A=(-a); else A=(-b); fi\nc "${A[@]}"', ["${A[@]}"]),
        ('mapfile -t A < f\nc "${A[@]}"', ["${A[@]}"]),
    ],
)
def test_arrays(text: str, expected: list[str]) -> None:
    assert values(text)[-1] == ["c", *expected]


@pytest.mark.parametrize(
    "block",
    [
        'for i in 0 1; do\n A="$A -d$i"\ndone',
        "if [ x ]; then A=1; fi",
        "case $X in\n a) A=1 ;;\nesac",
        "while read l; do if x; then A=1; fi; done",
    ],
)
def test_what_is_set_twice_is_not_known_after_it(block: str) -> None:
    assert values(f"A=x\nc $A\n{block}\nc $A")[1] == ["c", "x"]
    assert values(f"A=x\nc $A\n{block}\nc $A")[-1] == ["c", "$A"]


def test_a_range_in_braces_is_a_note() -> None:
    found = ShellText("x\nc --d=/dev/n{0..2} '{a,b}' ${A} {}")
    assert found.commands[1].words == ("c", "--d=/dev/n{0..2}", "{a,b}", "${A}", "{}")
    assert [(one.line, "{0..2}" in one.why) for one in found.unread] == [(2, True)]


def test_commands_keep_where_they_are_written() -> None:
    first, second = ShellText("a \\\n  \"$B\" 'c d'\n\n\ne 'f\ng'").commands
    assert (first.line, second.line) == (1, 5)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a \\ \n-b", 1),
        ("x\na \\  # b\n-c", 2),
        ("a \\\n# b\n-c", 2),
        ("a\n -b", 1),
        ("a \\\n\n --b", 2),
    ],
)
def test_a_line_that_is_not_continued_is_named_and_read_as_continued(text: str, line: int) -> None:
    command = ShellText(text).commands[-1]
    assert len(command.words) == 2
    assert command.cuts == (line,)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("a 'b", 1, []),
        ('x\nb "c\nls', 2, [["x"], ["ls"]]),
        ("x\na=(b\nc", 2, [["x"]]),
        ("a $(b\nc", 1, [["c"]]),
    ],
)
def test_what_is_not_closed_is_not_read_and_the_rest_is(text: str, line: int, expected: list[list[str]]) -> None:
    assert [one.line for one in ShellText(text).unread] == [line]
    assert values(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "A0=xxxxxxxx\n" + "".join(f"A{n + 1}=$A{n}$A{n}\n" for n in range(30)) + "c $A30",
        "A='" + ("x" * 1000 + " ") * 20 + "'\n" + "c $A\n" * 20_000,
        "A=(" + "x" * 1000 + ")\n" + 'c "${A[@]}"\n' * 20_000,
        "A0=(x)\n" + "".join(f'A{n + 1}=("${{A{n}[@]}}" "${{A{n}[@]}}")\n' for n in range(30)),
    ],
)
def test_what_becomes_too_many_words_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MOST_CHARACTERS", 1 << 17)  # what is below it is read word by word first
    with pytest.raises(UsageError, match="makes too many words for any shell"):
        ShellText(text)


@pytest.mark.parametrize(
    "piece",
    ["-e A=1 ", "a\n", "\n", "a \\\n", "{,", "${a-", "# a\n", "'a' ", "<a", "$(", "d;", "a='\n", "A=(b)\n", "<<a b\n"],
)
def test_the_time_that_a_text_takes_grows_as_its_length_does(piece: str) -> None:
    def seconds(count: int) -> float:
        begin = time.process_time()
        ShellText(piece * count)
        return time.process_time() - begin

    # 8 times the text takes 8 times as long; 64 times, where each word took as long as all before it. A busy machine
    # can make one attempt look bad, and not each of five.
    assert any(seconds(8000) < 32 * seconds(1000) + 0.1 for _ in range(5))
