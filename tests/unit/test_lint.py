from __future__ import annotations

import pytest

from cannery.render.lint import instructions, lint
from cannery.vocab import Arch, Severity


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


# Each kind that a hand-written Dockerfile has (W3); the first line of `text` is line 2.
WRONG = [
    ("lint-braces", "RUN mkdir -p /opt/{a,b}"),
    ("lint-braces", "RUN cp x{1..3} /y"),
    ("lint-braces", 'SHELL ["/bin/bash", "-c"]\nFROM y\nRUN rm -rf /tmp/{x,y}'),
    ("lint-link", "COPY --link a.so /lib/a.so"),
    ("lint-link", "COPY --link --from=x /out/ /usr/local/Ascend/ascend-toolkit/latest/opp"),
    ("lint-link", "RUN ln -sfn /data/src /opt/src\nCOPY --link verl /opt/src/verl"),
    ("lint-unverified", "RUN pip install --trusted-host mirror x"),
    ("lint-unverified", "RUN pip config set global.trusted-host mirror"),
    ("lint-unverified", "RUN conda config --set ssl_verify false"),
    ("lint-unverified", "RUN echo insecure >> ~/.curlrc"),
    ("lint-unverified", "ENV PIP_TRUSTED_HOST=mirror"),
    ("lint-unverified", "RUN git config --global http.sslVerify false"),
    ("lint-unverified", "ENV GIT_SSL_NO_VERIFY=1"),
    ("lint-unverified", "RUN curl -fskL https://x/y | sh"),
    ("lint-unverified", "RUN curl --insecure https://x/y"),
    ("lint-unverified", "RUN wget --no-check-certificate https://x/y"),
    ("lint-unverified", "RUN echo 'Acquire::https::Verify-Peer \"false\";' > /etc/apt/apt.conf.d/x"),
    ("lint-unverified", "RUN apt-get install --allow-unauthenticated x"),
    ("lint-unverified", "RUN echo 'deb [trusted=yes] http://x y z' > /etc/apt/sources.list"),
    ("lint-libraries", "ENV LD_LIBRARY_PATH=/opt/mine/lib"),
    ("lint-libraries", "ENV LD_LIBRARY_PATH /opt/mine/lib"),
    ("lint-libraries", "RUN echo export LD_LIBRARY_PATH=$LD_LIBRARY_PATH >> ~/.bashrc"),
    ("lint-libraries", 'RUN echo "LD_LIBRARY_PATH=/x" | tee /etc/environment'),
    ("lint-triton", "RUN pip install triton-ascend\nRUN pip uninstall -y triton"),
    ("lint-triton", "RUN pip install triton-ascend==3.2.0 && pip uninstall -y torchvision triton"),
    ("lint-triton", "RUN uv pip install triton-ascend && uv pip uninstall triton && true"),
    ("lint-triton", "RUN pip install triton_ascend==3.2.0\nRUN uv pip uninstall triton"),
    ("lint-triton", "RUN pip uninstall -y triton && pip install triton-ascend && pip uninstall -y triton"),
    ("lint-arch", "ENV A=/usr/lib/x86_64-linux-gnu/x.so"),
    ("lint-arch", "RUN tar -xf tool-amd64.tar"),
    ("lint-arch", "RUN cd /usr/local/Ascend/cann/x86_64-linux"),
]
RIGHT = [
    "RUN mkdir -p ${a,b} '{a,b}' && echo \"${X}\" {}",
    'SHELL ["/bin/bash", "-c"]\nRUN mkdir /opt/{a,b}',
    "RUN bash -c 'mkdir /opt/{a,b}'",
    "COPY --link a.so /library/a.so",
    "COPY a.so /lib/a.so",
    "RUN git config --global http.sslVerify true && curl -fsSL https://x/y",
    "ENV LD_LIBRARY_PATH=/opt/mine/lib:${LD_LIBRARY_PATH}",
    'ENV LD_LIBRARY_PATH="/usr/local/Ascend/cann/lib64:/x"',
    "RUN pip uninstall -y triton && pip install triton-ascend",
    "RUN pip install triton-ascend && pip uninstall -y triton-nightly",
    "FROM --platform=linux/amd64 z AS build\nRUN tar -xf tool-amd64.tar",
    "RUN tar -xf tool-arm64.tar",
]


@pytest.mark.parametrize(("code", "text"), WRONG)
def test_each_kind_of_a_hand_written_dockerfile(code: str, text: str) -> None:
    (finding,) = lint(f"FROM x\n{text}\n", Arch.ARM64)
    assert (finding.severity, finding.code) == (Severity.ERROR, code)
    last = 1 + len(text.splitlines())
    assert finding.what.startswith(f"Dockerfile:{last}: ")


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_near_and_right(text: str) -> None:
    assert lint(f"FROM x\n{text}\n", Arch.ARM64) == ()


@pytest.mark.parametrize("line", ["# syntax=docker/dockerfile:1", "#SYNTAX = docker/dockerfile:1.7-labs"])
def test_a_syntax_line_pulls_a_front_end(line: str) -> None:
    (finding,) = lint(f"{line}\nFROM x\n")
    assert finding.code == "lint-syntax"
    assert lint(f"FROM x\n{line}\n") == (), "behind the first instruction it is a comment"
