from __future__ import annotations

import pytest

from cannery.engine.stream import client_words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("docker: Error response from daemon: No such image: a:1.\nSee 'docker run --help'.\n", "No such image: a:1."),
        (
            "docker: Error response from daemon: bad device\n\nRun 'docker run --help' for more information\n",
            "bad device",
        ),
        ("Error response from daemon: No such image: a:1\n", "No such image: a:1"),
        ("docker: Cannot connect to the Docker daemon", "Cannot connect to the Docker daemon"),
        ("See 'docker run --help'.", "status 125"),
        ("", "status 125"),
    ],
)
def test_what_the_client_adds_is_left_out(error: str, words: str) -> None:
    assert client_words(error, 125) == words
