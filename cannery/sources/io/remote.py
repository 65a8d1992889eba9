"""What a repository has beside the commit that is known: its tags, and where its branches are."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from cannery.sources.io.git import GitReadError, read, talk
from cannery.sources.io.git_mirror import places
from cannery.util.redact import redactor
from cannery.util.trouble import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cannery.sources.io.store import SourceStore

# Seconds in which a host must answer.
SILENCE = 8.0
LINE = re.compile(r"^([0-9a-f]{40})\s(HEAD|refs/\S+)$", re.MULTILINE)


def remote_refs(store: SourceStore, hosts: Mapping[str, str], lost: set[str]) -> tuple[dict[str, str], str]:
    """Return {ref: commit} of a repository, of GIT_MIRROR or else of the first of `hosts` that answers; and why none.

    `lost` are hosts that did not answer before; those that do not answer now are added.
    """
    if store.mirror is not None:
        for repository in dict.fromkeys(hosts.values()):
            for _, git_dir in places(store.mirror, repository):
                if git_dir is not None:
                    try:
                        text = read((f"--git-dir={git_dir}", "show-ref", "--head", "--dereference"), store.env).decode()
                    except GitReadError as error:
                        return {}, str(error)
                    return _refs(text), ""
        return {}, "it is not in GIT_MIRROR"
    why = []
    for host, repository in hosts.items():
        if host in lost or host not in store.hosts:
            why.append(f"{host} did not answer")
            continue
        url = store.hosts[host].url.replace("{repository}", repository)
        done, text = talk(("ls-remote", "--", url), store.env, store.cache, stop=threading.Event(), silence=SILENCE)
        if done:
            return _refs(text), ""
        lost.add(host)
        why.append(f"{host}: {reason(redactor()(text))}")
    return {}, "; ".join(why)


def _refs(text: str) -> dict[str, str]:
    """Return the refs; a tag is the commit that it names."""
    found = {ref: commit for commit, ref in LINE.findall(text)}
    peeled = {ref.removesuffix("^{}"): commit for ref, commit in found.items() if ref.endswith("^{}")}
    return {ref: peeled.get(ref, commit) for ref, commit in found.items() if not ref.endswith("^{}")}
