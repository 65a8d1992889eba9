"""The check of leftovers: nothing of the build stayed in the image."""

import os
import re
from collections.abc import Iterable

from verifying.image import VENV, Image
from verifying.outcome import Outcome, judged, warning

SETTINGS = (
    *("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/root/.pip/pip.conf", "/root/.config/pip/pip.conf"),
    *(f"{VENV}/pip.conf", "/etc/uv/uv.toml", "/root/.config/uv/uv.toml"),
    *("/root/.netrc", "/root/.git-credentials", "/root/.config/git/credentials", "/root/.docker/config.json"),
)
AUTHORITIES = ("/usr/local/share/ca-certificates/*", "/etc/pki/ca-trust/source/anchors/*")
CACHES = (
    *("/root/.cache/*", "/var/lib/apt/lists/*", "/var/cache/apt/archives/*.deb", "/var/cache/apt/*.bin"),
    *("/var/cache/dnf/*", "/var/cache/yum/*"),
)
SHELL_FILES = (
    *("/etc/environment", "/etc/profile.d/*.sh", "/etc/apt/apt.conf.d/*", "/etc/apt/apt.conf"),
    *("/etc/dnf/dnf.conf", "/etc/yum.conf"),
)
SETTING = re.compile(
    r"^[^#\n]*(https?_proxy|all_proxy|PIP_\w*URL|Acquire::\w+::proxy)\b|^proxy\s*=", re.IGNORECASE | re.MULTILINE
)
# Settings that turn the verification of servers or of signatures off: files (below / or a home), and what they have.
APT = r"Verify-(Peer|Host)\W+(false|0|no|off)\b|Allow(Insecure|Unauthenticated)\w*\W+(true|1|yes|on)\b"
UNVERIFIED = (
    (("/etc/apt/apt.conf", "/etc/apt/apt.conf.d/*"), APT),
    (("/etc/apt/sources.list", "/etc/apt/sources.list.d/*"), r"\[[^]\n]*(trusted|allow-insecure)=yes|^Trusted:\s*yes"),
    (("/etc/dnf/dnf.conf", "/etc/yum.conf", "/etc/yum.repos.d/*.repo"), r"^\s*sslverify\s*=\s*(0|no|false|off)\b"),
    (("/etc/gitconfig", "~/.gitconfig", "~/.config/git/config"), r"^\s*sslverify\s*=\s*(false|0|no|off)\b"),
    (("/etc/curlrc", "~/.curlrc", "~/.config/curlrc"), r"^\s*(-k|(--)?(proxy-)?insecure)\b"),
    (("/etc/wgetrc", "~/.wgetrc"), r"^\s*check[-_]?certificate\s*=\s*(off|no|false|0)\b"),
    (("/etc/npmrc", "~/.npmrc"), r"^\s*strict-ssl\s*=\s*false\b"),
)
# Variables of the same meaning, and the values that turn it off.
UNVERIFIED_ENV = {
    "GIT_SSL_NO_VERIFY": r"(?!(0|false|no|off)?$).*",
    **dict.fromkeys(("PYTHONHTTPSVERIFY", "NODE_TLS_REJECT_UNAUTHORIZED"), r"0"),
    **dict.fromkeys(("CONDA_SSL_VERIFY", "NPM_CONFIG_STRICT_SSL", "GIT_SSL_VERIFY"), r"(?i:0|false|no|off)"),
    **dict.fromkeys(("PIP_TRUSTED_HOST", "UV_INSECURE_HOST", "UV_INSECURE_NO_ZIP_VALIDATION"), r".+"),
}
PROXY = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
BUNDLE = re.compile(r"PIP_CERT|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO")


def leftovers_check(image: Image) -> Outcome:
    """Nothing of the build stayed: settings, credentials, certificates, proxies, caches, and no verification is off."""
    # What the manifest names is the image's own, and static.files compares its hash.
    named = {item["path"] for item in image.manifest["checks"]["files"] if item["sha256"]}
    faults = [f"{path} was left in the image" for path in SETTINGS if path not in named and ours(image, path)]
    faults += [f"{path}: a certificate of the build was left" for path in matching(image, AUTHORITIES)]
    started = container_start(image)
    for path in matching(image, CACHES):
        where = image.path(path)
        # Others may be links that lead nowhere, or folders that this user cannot list.
        may_stay = os.path.basename(path) in {"lock", "partial", "auxfiles"}
        is_kept = may_stay and not (os.listdir(where) if os.path.isdir(where) else os.path.getsize(where))
        if not is_kept and os.lstat(where).st_mtime < started:
            faults.append(f"{path}: a cache was left")
    env = image.manifest["env"]
    faults += [f"ENV {name} was left in the image" for name in env if of_network(name) or is_index(name, env[name])]
    off = [name for name in env if name in UNVERIFIED_ENV and re.fullmatch(UNVERIFIED_ENV[name], env[name])]
    faults += [f"ENV {name}={env[name]} turns verification off" for name in off]
    faults += unverified(image)
    for path in matching(image, SHELL_FILES):
        setting = SETTING.search(image.text(path))
        faults += [f"{path} sets {(setting[1] or 'proxy').strip()}"] if setting else []
    faults += [f"{name} is set in this process" for name, value in image.env.items() if is_index(name, value)]
    notes = sorted(name for name in image.env if of_network(name) and name not in env)
    if notes and not faults:
        return warning(
            f"{', '.join(notes)} set in this container: right when given at its start, wrong when left by the build"
        )
    return judged(faults, "no settings, certificates, proxies or caches of the build")


def unverified(image: Image) -> list[str]:
    """The files of the image that turn the verification of servers or signatures off."""
    user = image.manifest["user"] or {}
    homes = dict.fromkeys(["/root", user.get("home") or "/root"])
    faults = []
    for patterns, words in UNVERIFIED:
        places = dict.fromkeys(pattern.replace("~", home) for pattern in patterns for home in homes)
        for path in matching(image, places):
            found = re.search(rf"^(?!\s*(#|//|;)).*?({words})", image.text(path), re.MULTILINE | re.IGNORECASE)
            faults += [f"{path} turns verification off: {found[0].strip()}"] if found else []
    return faults


def of_network(name: str) -> bool:
    """Whether a variable names a proxy or a bundle of certificates."""
    return bool(PROXY.fullmatch(name) or BUNDLE.fullmatch(name))


def is_index(name: str, value: str) -> bool:
    """Whether a variable names a package index."""
    return name.startswith(("PIP_", "UV_")) and "://" in value


def matching(image: Image, patterns: Iterable[str]) -> list[str]:
    """The paths of the image itself that match one of some patterns."""
    return [path for pattern in patterns for path in image.find(pattern) if ours(image, path)]


def ours(image: Image, path: str) -> bool:
    """Whether a path exists in the image itself, and not in what a user mounts there."""

    def mounts() -> list[str]:
        lines = (line.split() for line in image.text("/proc/self/mountinfo").splitlines())
        return [fields[4] + "/" for fields in lines if len(fields) > 4 and fields[4] != "/"]

    places = image.remember("mounts", mounts)
    return os.path.lexists(image.path(path)) and not any(f"{path}/".startswith(place) for place in places)


def container_start(image: Image) -> float:
    """When process 1 started, in seconds since the epoch: a younger cache is not the build's. Infinity if unknown."""
    boot = re.search(r"^btime (\d+)$", image.text("/proc/stat"), re.MULTILINE)
    fields = image.text("/proc/1/stat").rpartition(")")[2].split()
    if not boot or len(fields) < 20:
        return float("inf")
    return int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
