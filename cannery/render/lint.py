"""Find errors in a rendered Dockerfile before it is built.

Each rule is a small function over the instructions; its docstring gives the reason.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cannery.compat.subject import Finding, in_order
from cannery.util.addresses import CREDENTIALS
from cannery.vocab import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cannery.vocab import Arch

REMOTE = re.compile(r"(?:https?|git|ssh)://|git@|\S+\.git(?:#\S*)?$")
ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
ARGUMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:=|$)")

SYNTAX = re.compile(r"#\s*syntax\s*=\s*(\S+)", re.IGNORECASE)
# The shell does not expand words in single quotes.
QUOTED = re.compile(r"'[^']*'")
IN_BRACES = re.compile(r"\{[^{}\s\"'$]*(?:,|\.\.)[^{}\s\"'$]*\}")
BRACES = re.compile(rf"(?<![$\\\w{{])[\w./-]*{IN_BRACES.pattern}")
# Symlinks of every base: folders of Debian, Ubuntu and openEuler that lead into /usr and /run, and CANN's `latest`.
LINKS = ("/bin", "/lib", "/lib64", "/sbin", "/var/run", "/var/lock", "/usr/local/Ascend/ascend-toolkit/latest")
MADE_LINK = re.compile(r"\bln\s+(?:-\w*\s+)*-\w*s\w*\s+(?:-\w+\s+)*\S+\s+(/[^\s;&|]+)")
# {word: pattern that contains it} of what turns verification off, in lower case. Most instructions have no such word.
UNVERIFIED = {
    "curl": r"\bcurl\b[^;&|]*\s(?:-[a-z]*k[a-z]*|--insecure)(?:\s|$)",
    "insecure": r"--allow-insecure-host\b|\buv_insecure_host\b|\binsecure\b.*\.curlrc\b"
    r"|allowinsecure\w*\W+(?:true|1|yes)\b",
    "no-check-cert": r"--no-check-certificate\b",
    "node_tls": r"\bnode_tls_reject_unauthorized\W+0\b",
    "nogpgcheck": r"--nogpgcheck\b",
    "strict-ssl": r"\bstrict-ssl\W+false\b",
    "trusted": r"\btrusted-host\b|\bpip_trusted_host\b|trusted=yes\b",
    "unauth": r"--allow-unauthenticated\b|allowunauthenticated\w*\W+(?:true|1|yes)\b",
    "verify": r"ssl_?verify\W+(?:false|0|off|no)\b|\bgit_ssl_no_verify\W+(?:1|true)\b|\bpythonhttpsverify\W+0\b"
    r"|verify-(?:peer|host)\W+(?:false|0|no|off)\b",
}
LIBRARIES = re.compile(r"\bLD_LIBRARY_PATH[= ](?! )(\"[^\"]*\"|'[^']*'|\S*)")
INTO_FILE = re.compile(r"\bLD_LIBRARY_PATH=.*(?:>>?|\btee\b)\s*\S|(?:>>?|\btee\b).*<<.*\bLD_LIBRARY_PATH=")
TRITON = re.compile(r"\buninstall\b[^;&|]*\striton(?![\w-])")
TRITON_ASCEND = re.compile(r"\binstall\b[^;&|]*\btriton[-_]ascend\b")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its first line number (from 1), its keyword in upper case, and the rest on one line."""

    line: int
    keyword: str
    rest: str


def instructions(dockerfile: str) -> tuple[Instruction, ...]:
    """Split a Dockerfile into instructions, without comments and empty lines; continued lines are joined."""
    found: list[Instruction] = []
    start, parts = 0, [""]
    for number, line in enumerate(dockerfile.splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not any(parts):
            start = number
        parts.append(text.removesuffix("\\").strip())
        if not text.endswith("\\"):
            keyword, _, rest = " ".join(filter(None, parts)).partition(" ")
            found.append(Instruction(start, keyword.upper(), rest.strip()))
            parts = [""]
    return tuple(found)


def lint(dockerfile: str, arch: Arch | None = None) -> tuple[Finding, ...]:
    """Return the errors in a Dockerfile; `arch` is the image's."""
    found = instructions(dockerfile)
    rules = (_remote_add, _private, _unused, _braces, _through_links, _unverified, _frozen, _triton)
    lines = [*_syntax(dockerfile), *(finding for rule in rules for finding in rule(found))]
    return in_order([*lines, *(_other_arch(found, arch) if arch else ())])


def _remote_add(found: Sequence[Instruction]) -> Iterator[Finding]:
    """ADD of a URL or repository ignores the proxy arguments that RUN uses (moby/buildkit issue 5329)."""
    for one in found:
        words = [word for word in one.rest.split() if not word.startswith("--")][:-1] if one.keyword == "ADD" else []
        for word in words:
            if REMOTE.match(word):
                what = f"ADD {word.partition('@')[2] or word} fetches past the proxy"
                why = "BuildKit gives proxy arguments to RUN alone (moby/buildkit issue 5329)"
                yield _error("lint-add", one, what, why, "let Cannery fetch it as a source, or fetch it in a RUN")


def _private(found: Sequence[Instruction]) -> Iterator[Finding]:
    """ENV, ARG and LABEL are kept in the image's history: they must hold no credentials and no private address."""
    for one in found:
        if one.keyword not in {"ENV", "ARG", "LABEL"}:
            continue
        if CREDENTIALS.search(one.rest):
            yield _history_error(one, "credentials in a URL")
        addresses = [text for text in ADDRESS.findall(one.rest) if _is_private(text)]
        if addresses:
            yield _history_error(one, f"the private address {addresses[0]}")


def _is_private(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address.is_private and not address.is_unspecified


def _history_error(one: Instruction, what: str) -> Finding:
    why = "everybody who pulls the image can read it in its history"
    fix = "proxies reach RUN steps by themselves; anything secret is a build secret (templates/stages/system.j2)"
    return _error("lint-private", one, f"{one.keyword} holds {what}", why, fix)


def _unused(found: Sequence[Instruction]) -> Iterator[Finding]:
    """Setting an argument that nothing reads has no effect (vllm-ascend pull 7278)."""
    for number, one in enumerate(found):
        match = ARGUMENT.match(one.rest) if one.keyword == "ARG" else None
        if match is None:
            continue
        name = match["name"]
        used = re.compile(rf"\$(?:{name}\b|\{{{name}[:}}])")
        if not any(used.search(other.rest) for other in found[number + 1 :]):
            why = "setting it has no effect"
            yield _error("lint-arg", one, f"ARG {name} is declared and never used", why, "use it, or remove it")


def _error(code: str, one: Instruction, what: str, why: str, fix: str) -> Finding:
    return Finding(Severity.ERROR, code, f"Dockerfile:{one.line}: {what}", why, fix)


def _syntax(dockerfile: str) -> Iterator[Finding]:
    """A syntax line makes BuildKit pull a front end from Docker Hub, which some sites cannot reach."""
    for number, line in enumerate(dockerfile.splitlines(), start=1):
        match = SYNTAX.match(line.strip())
        if match is None and not line.strip().startswith("#"):
            return
        if match is not None:
            what, why = f"# syntax={match[1]}", "BuildKit pulls it from a registry before it reads the Dockerfile"
            yield _error("lint-syntax", Instruction(number, "#", ""), what, why, "leave it out: nothing here needs it")


def _braces(found: Sequence[Instruction]) -> Iterator[Finding]:
    """/bin/sh is dash on Debian and Ubuntu, which does not expand {a,b}."""
    is_bash = False
    for one in found:
        is_bash = "bash" in one.rest if one.keyword == "SHELL" else is_bash and one.keyword != "FROM"
        text = QUOTED.sub("", one.rest) if one.keyword == "RUN" and not is_bash else ""
        word = BRACES.search(text) if IN_BRACES.search(text) else None
        if word and "bash -" not in one.rest:
            why = "only bash expands braces, and RUN is /bin/sh's"
            yield _error("lint-braces", one, f"RUN has {word[0]}", why, "write the words out, or set SHELL")


def _through_links(found: Sequence[Instruction]) -> Iterator[Finding]:
    """COPY --link makes an independent layer with real folders, which replace a symlink of the base."""
    links = list(LINKS)
    for one in found:
        links += MADE_LINK.findall(one.rest) if one.keyword == "RUN" else []
        if one.keyword not in {"COPY", "ADD"} or "--link" not in one.rest.split():
            continue
        target = one.rest.split()[-1]
        folder = f"{target.rstrip('/')}/"
        link = next((path for path in links if folder.startswith(f"{path}/")), None)
        if link:
            why = "a linked layer has folders instead of the links below it"
            fix = "copy to where the link leads, or leave --link out"
            yield _error("lint-link", one, f"{one.keyword} --link to {target}, through the link {link}", why, fix)


def _unverified(found: Sequence[Instruction]) -> Iterator[Finding]:
    for one in found:
        text = one.rest.lower() if one.keyword in {"RUN", "ENV", "ARG"} else ""
        matches = [re.search(pattern, text) for word, pattern in UNVERIFIED.items() if word in text]
        if spans := [match.span() for match in matches if match]:
            words = one.rest[slice(*min(spans))].strip()
            why = "anybody on the network can replace the download"
            fix = "give the site's CA to the build: cannery takes pip's, git's and SSL_CERT_FILE's"
            yield _error("lint-unverified", one, f"{words} turns verification off", why, fix)


def _frozen(found: Sequence[Instruction]) -> Iterator[Finding]:
    """LD_LIBRARY_PATH must hold CANN's folders, and must not be set in a shell's file: `docker exec` reads none."""
    for one in found:
        if one.keyword == "ENV":
            values = [value for value in LIBRARIES.findall(one.rest) if "LD_LIBRARY_PATH" not in value]
            lost = next((value for value in values if "/usr/local/Ascend" not in value), None)
            what = f"ENV LD_LIBRARY_PATH={lost} leaves the base's folders out" if lost is not None else ""
        else:
            is_written = one.keyword == "RUN" and "LD_LIBRARY_PATH=" in one.rest and INTO_FILE.search(one.rest)
            what = "RUN writes LD_LIBRARY_PATH into a file" if is_written else ""
        if what:
            why = "CANN's and the driver's libraries are found by it, in every process of a container"
            yield _error("lint-libraries", one, what, why, "set it by ENV, with ${LD_LIBRARY_PATH} in it")


def _triton(found: Sequence[Instruction]) -> Iterator[Finding]:
    """Packages triton and triton-ascend share the folder triton/: removing one removes files of the other."""
    installed = False
    for one in found:
        if one.keyword == "RUN" and "triton" in one.rest:
            install = TRITON_ASCEND.search(one.rest)
            if TRITON.search(one.rest, 0 if installed or not install else install.end()) and (installed or install):
                why = "it removes files that triton-ascend has installed over triton's"
                fix = "exclude triton in the profile, or install triton-ascend after it"
                yield _error("lint-triton", one, "triton is uninstalled after triton-ascend", why, fix)
            installed = installed or install is not None


def _other_arch(found: Sequence[Instruction], arch: Arch) -> Iterator[Finding]:
    """ENV, and RUN in stages of the image's platform, must not name another architecture."""
    other = next(one for one in type(arch) if one is not arch)
    words = re.compile(rf"(?<![\w])(?:{other}|{other.machine})(?![a-z0-9])|{other.machine}-linux")
    foreign = False
    for one in found:
        foreign = "--platform" in one.rest if one.keyword == "FROM" else foreign
        is_kept = one.keyword == "ENV" or (one.keyword == "RUN" and not foreign)
        is_named = other in one.rest or other.machine in one.rest
        match = words.search(one.rest) if is_kept and is_named else None
        if match:
            why = f"the image is for {arch}"
            fix = f"write {arch.machine}, or compute it"
            yield _error("lint-arch", one, f"{one.keyword} names {match[0]}", why, fix)
