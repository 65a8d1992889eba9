"""What programs write when the network fails, as one reason."""

from __future__ import annotations

import pytest

from cannery.sources.io.git import readable
from cannery.util.trouble import OF_HOST, Reason, State, reason

URL = "https://host.invalid/owner/name.git"
ACCESS = f"fatal: unable to access '{URL}/': "
COULD_NOT = "\nfatal: Could not read from remote repository."
ONE = "1" * 40


@pytest.mark.parametrize(
    ("text", "state", "detail"),
    [
        (f"{ACCESS}Could not resolve host: host.invalid", State.DNS, "host.invalid"),
        (
            f"ssh: Could not resolve hostname host.invalid: Name or service not known{COULD_NOT}",
            State.DNS,
            "host.invalid",
        ),
        (f"{ACCESS}Could not resolve proxy: proxy.invalid", State.PROXY, "proxy.invalid"),
        (f"{ACCESS}CONNECT tunnel failed, response 407", State.PROXY, ""),
        (f"{ACCESS}Failed to connect to h port 443 after 0 ms: Couldn't connect to server", State.REFUSED, ""),
        (f"{ACCESS}Failed to connect to h port 443: Connection timed out", State.TIMEOUT, ""),
        ("error: RPC failed; curl 28 Operation too slow. Less than 9 bytes/sec", State.TIMEOUT, ""),
        ("remote: Enumerating objects: 5\nfatal: no output within 20 s", State.TIMEOUT, "no output within 20 s"),
        (f"{ACCESS}SSL certificate problem: self-signed", State.TLS, "SSL certificate problem: self-signed"),
        (f"fatal: could not read Username for '{URL}': terminal prompts disabled", State.LOGIN, ""),
        (f"git@h: Permission denied (publickey).{COULD_NOT}", State.LOGIN, "Permission denied (publickey)"),
        (f"{ACCESS}The requested URL returned error: 403", State.LOGIN, "403"),
        (f"fatal: repository '{URL}/' not found", State.REPOSITORY, ""),
        ("fatal: '/x/y.git' does not appear to be a git repository", State.REPOSITORY, ""),
        (f"{ACCESS}The requested URL returned error: 502", State.SERVER, "502"),
        (f"fatal: remote error: upload-pack: not our ref {ONE}", State.COMMIT, ""),
        (f"error: Server does not allow request for unadvertised object {ONE}", State.SINGLE, ""),
        ("fatal: dumb http transport does not support shallow capabilities", State.SINGLE, ""),
        (f"fatal: remote error: want {ONE} not valid", State.SINGLE, ""),
        ("fatal: the remote end hung up unexpectedly\nfatal: early EOF", State.RESET, ""),
        ("error: file write error: No space left on device\nfatal: bad pack", State.DISK, "No space left on device"),
        ("warning: x\nfatal: something new\nsome more", State.FAILED, "something new"),
        ("just words", State.FAILED, "just words"),
        ("", State.FAILED, ""),
    ],
)
def test_the_kind_of_trouble_and_its_detail(text: str, state: State, detail: str) -> None:
    assert reason(text) == Reason(state, detail)


def test_a_reason_is_one_line() -> None:
    assert str(Reason(State.DNS, "host.invalid")) == "host name not found: host.invalid"
    assert str(Reason(State.REPOSITORY)) == "no such repository"


def test_only_troubles_of_the_whole_host_make_it_the_last_to_be_asked() -> None:
    assert {State.PROXY, State.DNS, State.TLS, State.TIMEOUT, State.REFUSED, State.BUSY} == OF_HOST


def test_a_progress_line_is_kept_as_it_ended() -> None:
    output = b"remote: Counting: 1% (1/9)\rremote: Counting: 100% (9/9), done.\nReceiving: 5%\rfatal: x\xff\r\n"
    assert readable(output) == "remote: Counting: 100% (9/9), done.\nfatal: x\ufffd"
