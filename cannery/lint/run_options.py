"""The options of `docker run`, and which of them take a value; podman's and nerdctl's own are among them."""

from __future__ import annotations

_SWITCHES = """
detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hosts oom-kill-disable
privileged publish-all quiet read-only replace rm rmi sig-proxy tls-verify tty use-api-socket
"""
_VALUES = """
add-host annotation arch attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-conf cgroup-parent
cgroupns cidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus
cpuset-cpus cpuset-mems detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps
device-write-iops dns dns-option dns-search domainname entrypoint env env-file expose gpus group-add health-cmd
health-interval health-retries health-start-interval health-start-period health-timeout hostname io-maxbandwidth
io-maxiops ip ip6 ipc isolation kernel-memory label label-file link link-local-ip log-driver log-opt mac-address
memory memory-reservation memory-swap memory-swappiness mount name network network-alias oom-score-adj os pid
pids-limit platform publish pull restart rootfs runtime secret security-opt shm-size stop-signal stop-timeout
storage-opt sysctl systemd tmpfs tz ulimit umask user userns uts variant volume volume-driver volumes-from workdir
"""
SWITCHES = frozenset(_SWITCHES.split())
VALUES = frozenset(_VALUES.split())
# Options of `build.py run` that docker has not, and docker's way to say the same.
_CARDS = "name the nodes: --device /dev/davinci0 …; or have the line printed: build.py run PROFILE --npus 0,1 --print"
_BUILT = "leave it out: the image is what it was built as; build.py image and run take it"
OURS = {
    **dict.fromkeys(("as-documented", "base", "force", "git-mirror", "patches", "pin", "python"), _BUILT),
    **dict.fromkeys(("sources", "src", "wheelhouse"), _BUILT),
    "dev": "-v DIR:/opt/src/NAME; or have the line printed: build.py run PROFILE --dev NAME=DIR --print",
    "npu": _CARDS,
    "npus": _CARDS,
    "chip": "leave it out: the image is for one chip; build.py lint-run takes --chip behind the command",
    "cann": "leave it out: the image has its CANN",
    "interface": "-e HCCL_SOCKET_IFNAME=NAME -e GLOO_SOCKET_IFNAME=NAME",
    "format": "leave it out, or have it printed: build.py run PROFILE --print --format compose",
    "nodes": "leave it out: docker starts one container",
    "registry": "write it into the image's name, HOST/PATH/NAME:TAG",
    "print": "leave it out, or have the line printed: build.py run PROFILE --print",
    "no-caches": "leave it out: docker mounts what -v names, and no cache",
}
OUR_SWITCHES = frozenset({"as-documented", "force", "print", "no-caches"})
ALIASES = {"net": "network", "net-alias": "network-alias", "dns-opt": "dns-option"}
SHORT_SWITCHES = {"d": "detach", "i": "interactive", "t": "tty", "P": "publish-all", "q": "quiet"}
SHORT_VALUES = {
    "a": "attach",
    "c": "cpu-shares",
    "e": "env",
    "h": "hostname",
    "l": "label",
    "m": "memory",
    "p": "publish",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
# Options of the client itself, before `run`, that take a value in the next word.
CLIENT_VALUES = frozenset(
    {"-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--root", "-n", "--namespace"}
)


def is_option(word: str) -> bool:
    """Whether a word is one of `docker run`'s options, in whatever spelling."""
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return ALIASES.get(name, name) in SWITCHES | VALUES
    letters = word.removeprefix("-").lstrip("".join(SHORT_SWITCHES))
    return word.startswith("-") and len(word) > 1 and letters[:1] in {"", *SHORT_VALUES}
