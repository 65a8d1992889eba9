"""The headers of a layer's tar, held against what Docker writes."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from cannery.assemble.tar import END, Entry, Kind, above, head, padding, with_folders

EPOCH = 1_700_000_000
L = "d" * 60
# Files by path, with where a link leads to: names around the lengths at which a header is made in another way.
NAMES = {
    "opt/a-b/x": "", "opt/a/x": "", "opt/a.b": "",
    "n" * 99: "", "m" * 100: "", "k" * 101: "",
    f"{L}/{L}/file": "", f"{L}/{L}/{'e' * 31}/f": "", f"{L}/{L}/{'e' * 32}/f": "", f"{L}/{L}/{'e' * 33}/f": "",
    f"{L}/{L}/{'e' * 34}/g": "", f"{L}/{L}/{L}/deep/file": "", f"{L}/{'l' * 120}": "", f"{'g' * 120}/short": "",
    f"{'h' * 120}/{'i' * 120}/x": "", "opt/é/ü.txt": "", "opt/数据/文件.py": "", f"opt/é/{'z' * 120}": "", "ö": "",
    "link": "opt/a/x", "link-long": "/" + "t" * 120, "link-100": "t" * 100, "link-other": "opt/é/ü.txt",
    f"{L}/{L}/link": "opt/a.b", "q" * 120: "w" * 120, f"ä{'q' * 120}": "ä" * 120,
}  # fmt: skip
# The diff id that Docker 26.1.5 gave a layer of these files, each with its path as content (COPY --link, 2026-11-29).
BY_DOCKER = "31cd438668bc4bbdb230f00ac33e4d72d60d85c1ec219894b49d6f75e151aa60"


def tar() -> bytes:
    entries = [
        Entry(f"/{name}", Kind.LINK, 0o777, link=link)
        if link
        else Entry(f"/{name}", Kind.FILE, 0o644, len(name.encode()))
        for name, link in NAMES.items()
    ]
    data = b""
    for entry in with_folders(entries):
        data += head(entry, EPOCH)
        if entry.kind is Kind.FILE:
            content = entry.path[1:].encode()
            data += content + padding(len(content))
    return data + END


def test_a_layer_has_the_bytes_that_docker_writes() -> None:
    assert hashlib.sha256(tar()).hexdigest() == BY_DOCKER


def test_python_reads_what_was_written() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar())) as archive:
        entries = {entry.name: entry for entry in archive}
    assert {name: entry.linkname for name, entry in entries.items() if not entry.isdir()} == NAMES
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.values()} == {(0, 0, EPOCH)}
    assert {entry.mode for entry in entries.values() if entry.isdir()} == {0o755}


@pytest.mark.parametrize(
    ("entry", "blocks"),
    [
        (Entry("/" + "a" * 100, Kind.FILE, 0o755), 1),
        (Entry("/" + "a" * 101, Kind.FILE, 0o755), 3),
        (Entry(f"/{'a' * 155}/{'b' * 100}", Kind.FILE, 0o755), 1),
        (Entry(f"/{'a' * 156}/b", Kind.FILE, 0o755), 3),
        (Entry("/a", Kind.LINK, 0o777, link="b" * 101), 3),
        (Entry("/é", Kind.FILE, 0o644), 3),
        (Entry(f"/{'a' * 99}", Kind.FOLDER, 0o755), 1),
    ],
)
def test_a_name_that_does_not_fit_has_a_header_of_its_own(entry: Entry, blocks: int) -> None:
    assert len(head(entry, EPOCH)) == blocks * 512


def test_folders_come_before_what_is_in_them_and_in_the_order_of_parts() -> None:
    paths = ["/a-b/x", "/a/x", "/a.b", "/a/b/c"]
    found = with_folders(Entry(path, Kind.FILE, 0o644) for path in paths)
    assert [entry.path for entry in found] == ["/a", "/a/b", "/a/b/c", "/a/x", "/a-b", "/a-b/x", "/a.b"]
    assert above("/a/b/c") == ["/a", "/a/b"]


@pytest.mark.parametrize(("size", "owner"), [(8**11, (0, 0)), (0, (8**7, 0)), (0, (0, 8**7))])
def test_a_number_that_a_header_has_no_room_for_is_refused_by_name(size: int, owner: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="/big"):
        head(Entry("/big", Kind.FILE, 0o644, size, owner=owner), EPOCH)
