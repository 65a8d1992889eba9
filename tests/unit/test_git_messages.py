"""What git says when a fetch fails, as one line."""

from __future__ import annotations

import pytest

from cannery.sources.git_messages import Reason, Trouble, reason, said

URL = "https://host.invalid/owner/name.git"
ACCESS = f"fatal: unable to access '{URL}/': "
COULD_NOT = "\nfatal: Could not read from remote repository."
ONE = "1" * 40


@pytest.mark.parametrize(
    ("text", "trouble", "detail"),
    [
        (f"{ACCESS}Could not resolve host: host.invalid", Trouble.DNS, "host.invalid"),
        (
            f"ssh: Could not resolve hostname host.invalid: Name or service not known{COULD_NOT}",
            Trouble.DNS,
            "host.invalid",
        ),
        (f"{ACCESS}Could not resolve proxy: proxy.invalid", Trouble.PROXY, "proxy.invalid"),
        (f"{ACCESS}CONNECT tunnel failed, response 407", Trouble.PROXY, ""),
        (f"{ACCESS}Failed to connect to h port 443 after 0 ms: Couldn't connect to server", Trouble.CONNECTION, ""),
        (f"{ACCESS}Failed to connect to h port 443: Connection timed out", Trouble.TIMEOUT, ""),
        ("error: RPC failed; curl 28 Operation too slow. Less than 9 bytes/sec", Trouble.TIMEOUT, ""),
        ("remote: Enumerating objects: 5\nfatal: no word within 20 s", Trouble.TIMEOUT, "no word within 20 s"),
        (f"{ACCESS}SSL certificate problem: self-signed", Trouble.TLS, "SSL certificate problem: self-signed"),
        (f"fatal: could not read Username for '{URL}': terminal prompts disabled", Trouble.LOGIN, ""),
        (f"git@h: Permission denied (publickey).{COULD_NOT}", Trouble.LOGIN, "Permission denied (publickey)"),
        (f"{ACCESS}The requested URL returned error: 403", Trouble.LOGIN, "403"),
        (f"fatal: repository '{URL}/' not found", Trouble.REPOSITORY, ""),
        ("fatal: '/x/y.git' does not appear to be a git repository", Trouble.REPOSITORY, ""),
        (f"{ACCESS}The requested URL returned error: 502", Trouble.SERVER, "502"),
        (f"fatal: remote error: upload-pack: not our ref {ONE}", Trouble.COMMIT, ""),
        (f"error: Server does not allow request for unadvertised object {ONE}", Trouble.REFUSED, ""),
        ("fatal: dumb http transport does not support shallow capabilities", Trouble.REFUSED, ""),
        (f"fatal: remote error: want {ONE} not valid", Trouble.REFUSED, ""),
        ("fatal: the remote end hung up unexpectedly\nfatal: early EOF", Trouble.LOST, ""),
        ("error: file write error: No space left on device\nfatal: bad pack", Trouble.DISK, "No space left on device"),
        ("warning: x\nfatal: something new\nsome more", Trouble.OTHER, "something new"),
        ("just words", Trouble.OTHER, "just words"),
        ("", Trouble.OTHER, ""),
    ],
)
def test_the_kind_of_trouble_and_its_detail(text: str, trouble: Trouble, detail: str) -> None:
    assert reason(text) == Reason(trouble, detail)


def test_a_reason_is_one_line() -> None:
    assert str(Reason(Trouble.DNS, "host.invalid")) == "host name not found: host.invalid"
    assert str(Reason(Trouble.REPOSITORY)) == "no such repository"


def test_only_what_lies_with_the_host_moves_it_back() -> None:
    behind = {Trouble.PROXY, Trouble.DNS, Trouble.TLS, Trouble.TIMEOUT, Trouble.CONNECTION}
    assert {trouble for trouble in Trouble if trouble.is_the_hosts} == behind


def test_a_progress_line_is_kept_as_it_ended() -> None:
    output = b"remote: Counting: 1% (1/9)\rremote: Counting: 100% (9/9), done.\nReceiving: 5%\rfatal: x\xff\r\n"
    assert said(output) == "remote: Counting: 100% (9/9), done.\nfatal: x\ufffd"
