from __future__ import annotations

import pytest

from cannery.render.lint import instructions, lint
from cannery.vocab import Severity


def test_instructions_are_joined_and_numbered_from_their_first_line() -> None:
    text = "# a comment\nFROM x AS y\n\nRUN a \\\n    # between\n    b\nenv A=1\n"
    assert [(one.line, one.keyword, one.rest) for one in instructions(text)] == [
        (2, "FROM", "x AS y"),
        (4, "RUN", "a b"),
        (7, "ENV", "A=1"),
    ]


@pytest.mark.parametrize(
    ("line", "code", "what"),
    [
        ("ADD https://host/a.whl /tmp/", "lint-add", "Dockerfile:2: ADD https://host/a.whl fetches past the proxy"),
        ("ADD --link git@host:a/b.git#v1 /src", "lint-add", "Dockerfile:2: ADD host:a/b.git#v1 fetches past the proxy"),
        ("ENV http_proxy=http://10.1.2.3:8080", "lint-private", "Dockerfile:2: ENV holds the private address 10.1.2.3"),
        (
            "ARG INDEX=https://me:secret@host/simple\nRUN $INDEX",
            "lint-private",
            "Dockerfile:2: ARG holds credentials in a URL",
        ),
        ("LABEL a=192.168.0.7", "lint-private", "Dockerfile:2: LABEL holds the private address 192.168.0.7"),
        (
            "ARG SOC_VERSION=ascend910b1\nRUN make",
            "lint-arg",
            "Dockerfile:2: ARG SOC_VERSION is declared and never used",
        ),
        ("RUN $SOC\nARG SOC", "lint-arg", "Dockerfile:3: ARG SOC is declared and never used"),
    ],
)
def test_what_must_not_stand_there(line: str, code: str, what: str) -> None:
    (finding,) = lint(f"FROM x\n{line}\n")
    assert (finding.severity, finding.code, finding.what) == (Severity.ERROR, code, what)
    assert "secret" not in finding.what


@pytest.mark.parametrize(
    "line",
    [
        "ADD a.tar /opt",
        "COPY --from=x /out/ /",
        "ENV VERSION=2.7.1.3 ADDRESS=8.8.8.8 ANY=0.0.0.0",
        "ARG A\nRUN echo ${A:-1}",
        "ARG B=1\nENV C=$B",
        "RUN curl http://10.0.0.1/",
    ],
)
def test_what_may_stand_there(line: str) -> None:
    assert lint(f"FROM x\n{line}\n") == ()
