"""Network of the engine: one bridge, three iptables rules, IPv4 forwarding; all of it is taken back at stop.

The daemon itself leaves iptables alone (`daemon.daemon_config`). Each rule has the bridge's name as its comment, so
exactly those are removed, and nothing of another engine is touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import sys
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.errors import CanneryError, UnableError
from cannery.util.io.files import write_atomic
from cannery.util.io.process import Result, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from docker_engine.daemon import Layout

SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"  # root's PATH may not have these after `su`
# ioctl numbers of linux/sockios.h; used because a small Debian has no iproute2.
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFHWADDR = 0x8914, 0x8916, 0x891C, 0x8924
SIOCBRADDBR, SIOCBRDELBR = 0x89A0, 0x89A1
IFF_UP, ARPHRD_ETHER = 1, 1
IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
ROUTES = Path("/proc/net/route")
NET_CLASS = Path("/sys/class/net")
# Private ranges that home networks, clouds and Docker's own default pools (172.17 to 172.31, 192.168) use least.
CANDIDATES = tuple(IPv4Network(f"10.{second}.{third}.0/24") for second in (213, 187, 229) for third in (77, 141, 209))


def rules(bridge: str, subnet: IPv4Network) -> tuple[tuple[str, ...], ...]:
    """Return (table, chain, match …) of what containers need: their way out, the answers' way back, their address."""
    comment = ("-m", "comment", "--comment", bridge)
    answers = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    return (
        ("nat", "POSTROUTING", "-s", str(subnet), "!", "-o", bridge, *comment, "-j", "MASQUERADE"),
        ("filter", "FORWARD", "-o", bridge, *answers, *comment, "-j", "ACCEPT"),
        ("filter", "FORWARD", "-i", bridge, *comment, "-j", "ACCEPT"),
    )


def choose_subnet(table: str) -> IPv4Network:
    """Return the first candidate that overlaps no network of /proc/net/route. Raises `UnableError` where each does."""
    routed = []
    for words in map(str.split, table.splitlines()[1:]):
        if len(words) > 7 and words[7] != "00000000":  # no default route; addresses are hex, in host byte order
            address, mask = (IPv4Address(struct.pack("=L", int(words[i], 16))) for i in (1, 7))
            routed.append(IPv4Network(f"{address}/{mask}", strict=False))
    for candidate in CANDIDATES:
        if not any(candidate.overlaps(network) for network in routed):
            return candidate
    raise UnableError("no free private network for the engine's bridge", where=str(ROUTES))


def network_up(layout: Layout, programs: Path, env: Mapping[str, str]) -> None:
    """Make the bridge, its address, the rules and forwarding, where they are not there yet. Safe to repeat.

    Where this run switches forwarding on, the policy of FORWARD becomes DROP first, as Docker does it: or the host
    would route between all of its networks. Prints a warning where no iptables works: only containers miss it.
    """
    state = _read_state(layout)
    subnet = IPv4Network(state["subnet"]) if state else choose_subnet(ROUTES.read_text())
    iptables = next(_working_iptables(programs, env), None)
    if not state:
        policy = "".join(iptables("-S", "FORWARD").stdout.split()[2:3]) if iptables else ""
        state = {"subnet": str(subnet), "ip_forward": IP_FORWARD.read_text().strip(), "policy": policy}
        write_atomic(layout.state, json.dumps(state))
    _ensure_bridge(layout.bridge, subnet)
    if iptables is None:
        print("warning: iptables does not work here, so containers have no network", file=sys.stderr)
        return
    if state["ip_forward"] != "1":
        iptables("-P", "FORWARD", "DROP", check=True)
        IP_FORWARD.write_text("1")
    for table, chain, *match in rules(layout.bridge, subnet):
        if iptables("-t", table, "-C", chain, *match).returncode != 0:
            iptables("-t", table, "-I", chain, *match, check=True)


def network_down(layout: Layout, programs: Path | None, env: Mapping[str, str], others: Iterable[str] = ()) -> None:
    """Take back what `network_up` did; remove the bridges `others` too, those of the engine's further networks.

    Forwarding and the policy of FORWARD stay as they are where any other bridge is left, which may need them by now.
    """
    state = _read_state(layout)
    for name in (layout.bridge, *others):
        if (NET_CLASS / name).exists():
            _ioctl(SIOCSIFFLAGS, name, struct.pack("H", 0))
            _ioctl(SIOCBRDELBR, name)
    is_switched_off = state.get("ip_forward") == "0" and not any(NET_CLASS.glob("*/bridge"))
    if is_switched_off:
        IP_FORWARD.write_text("0")
    if state and programs is not None:
        for iptables in _working_iptables(programs, env):  # a rule may be where the first choice failed for a time
            for table, chain, *match in rules(layout.bridge, IPv4Network(state["subnet"])):
                iptables("-t", table, "-D", chain, *match)
            if is_switched_off and state["policy"]:
                iptables("-P", "FORWARD", state["policy"])
    layout.state.unlink(missing_ok=True)


def tool_env(programs: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which the unpacked programs find each other; the host's iptables goes before ours."""
    host = f"{env.get('PATH', os.defpath)}:{SYSTEM_PATH}"
    own = ":".join(str(programs / "usr" / name) for name in ("sbin", "bin", "libexec/docker"))
    result = {**env, "PATH": f"{own}:{host}:{programs / 'links'}"}
    if shutil.which("iptables", path=host) is None:
        result["LD_LIBRARY_PATH"] = ":".join(sorted({str(path.parent) for path in programs.glob("**/lib*.so.*")}))
        result["XTABLES_LIBDIR"] = "".join(map(str, programs.glob("usr/lib/*/xtables")))
    return result


def _working_iptables(programs: Path, env: Mapping[str, str]) -> Iterator[Callable[..., Result]]:
    """Give the host's iptables, else the unpacked one in each variant that this kernel takes, nft first.

    `links/iptables`, which dockerd finds too, is that variant until the next one is asked for.
    """
    tools = tool_env(programs, env)
    for kind in ("nft", "legacy") if "LD_LIBRARY_PATH" in tools else ("",):
        for name in ("iptables", "ip6tables") if kind else ():
            link = programs / "links" / name
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(f"../usr/sbin/xtables-{kind}-multi")
        try:
            if _iptables(tools, "-t", "nat", "-S").returncode == 0:
                yield partial(_iptables, tools)
        except CanneryError:  # there is no such program
            return


def _iptables(tools: Mapping[str, str], *words: str, check: bool = False) -> Result:
    return run(("iptables", "--wait", "5", *words), env=tools, check=check)


def _read_state(layout: Layout) -> dict[str, str]:
    return dict(json.loads(layout.state.read_text())) if layout.state.is_file() else {}


def _ensure_bridge(name: str, subnet: IPv4Network) -> None:
    """Make the bridge, or give one that is there what a network manager of the host may have taken from it."""
    gateway = next(subnet.hosts())
    if not (NET_CLASS / name).exists():
        _ioctl(SIOCBRADDBR, name)
        # Without one of its own a bridge has its lowest port's, and a container that comes or goes may change it: the
        # others then send to nobody until they ask anew, after up to 45 s.
        _ioctl(SIOCSIFHWADDR, name, struct.pack("H2s4s", ARPHRD_ETHER, b"\x02\x42", gateway.packed))
    _ioctl(SIOCSIFADDR, name, struct.pack("HH4s", socket.AF_INET, 0, gateway.packed))
    _ioctl(SIOCSIFNETMASK, name, struct.pack("HH4s", socket.AF_INET, 0, subnet.netmask.packed))
    _ioctl(SIOCSIFFLAGS, name, struct.pack("H", IFF_UP))


def _ioctl(number: int, name: str, payload: bytes = b"") -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, number, struct.pack("16s24s", name.encode(), payload))  # struct ifreq: a name, a union
