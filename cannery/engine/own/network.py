"""Network of Cannery's own engine: one bridge, three iptables rules, IPv4 forwarding; all of it taken back at stop.

The daemon itself leaves iptables alone (see `engine_layout.daemon_config`). Every rule carries a comment with
the engine's tag, so that exactly those are removed and nothing of another engine is touched.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import shutil
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cannery.engine.own.packages import Binaries, link_iptables
from cannery.engine.own.requirements import search_path
from cannery.errors import CanneryError, UnableError
from cannery.util.io.files import write_atomic
from cannery.util.io.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cannery.engine.own.layout import Layout

Network = ipaddress.IPv4Network

# ioctl numbers of linux/sockios.h; used because a small Debian has no iproute2.
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFHWADDR = 0x8914, 0x8916, 0x891C, 0x8924
SIOCBRADDBR, SIOCBRDELBR = 0x89A0, 0x89A1
IFF_UP = 0x1
ARPHRD_ETHER = 1
IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
ROUTES = Path("/proc/net/route")
NET_CLASS = Path("/sys/class/net")
# Private ranges that home networks, clouds and Docker's own default pools (172.17 to 172.31, 192.168) use least.
CANDIDATES = tuple(Network(f"10.{second}.{third}.0/24") for second in (213, 187, 229) for third in (77, 141, 209))


@dataclass(frozen=True)
class Rule:
    """One iptables rule: table, chain and the match with its target."""

    table: str
    chain: str
    match: tuple[str, ...]

    def command(self, action: str) -> tuple[str, ...]:
        """Arguments of iptables for -C (is it there), -I (put first) or -D (remove)."""
        return ("--wait", "5", "-t", self.table, action, self.chain, *self.match)


def rules(bridge: str, subnet: Network) -> tuple[Rule, ...]:
    """What containers need to reach the outside: their way out, the answers' way back, and the host's address."""
    comment = ("-m", "comment", "--comment", bridge)
    answers = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    return (
        Rule("nat", "POSTROUTING", ("-s", str(subnet), "!", "-o", bridge, *comment, "-j", "MASQUERADE")),
        Rule("filter", "FORWARD", ("-o", bridge, *answers, *comment, "-j", "ACCEPT")),
        Rule("filter", "FORWARD", ("-i", bridge, *comment, "-j", "ACCEPT")),
    )


def routed_networks(table: str) -> tuple[tuple[str, Network], ...]:
    """Interface and network of each line of /proc/net/route (hex, host byte order), without default routes."""
    found = []
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[7] != "00000000":
            address, mask = (socket.inet_ntoa(struct.pack("=L", int(words[i], 16))) for i in (1, 7))
            found.append((words[0], Network(f"{address}/{mask}", strict=False)))
    return tuple(found)


def choose_subnet(bridge: str, table: str) -> Network:
    """The network that `bridge` has already, else the first candidate that overlaps nothing the host routes.

    Raises `UnableError` when every candidate is taken.
    """
    routed = routed_networks(table)
    own = [network for name, network in routed if name == bridge]
    free = [c for c in CANDIDATES if not any(c.overlaps(network) for _, network in routed)]
    if not own and not free:
        raise UnableError("no free private network for the engine's bridge", where=str(ROUTES))
    return (own or free)[0]


def network_up(layout: Layout, binaries: Binaries, env: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Make the bridge, its address, the rules and forwarding, where they are not there yet. Safe to repeat.

    Says a warning, and goes on, where this kernel or host offers no iptables: images that fetch nothing build anyway.
    """
    state = _read_state(layout)
    subnet = Network(state["subnet"]) if "subnet" in state else choose_subnet(layout.bridge, ROUTES.read_text())
    forwarding = state.get("ip_forward", IP_FORWARD.read_text().strip())
    write_atomic(layout.network_state, json.dumps({"subnet": str(subnet), "ip_forward": forwarding}))
    _ensure_bridge(layout.bridge, subnet)
    if IP_FORWARD.read_text().strip() != "1":
        IP_FORWARD.write_text("1")
    iptables = next(_working_iptables(binaries, env), None)
    if iptables is None:
        say("warning: iptables does not work on this host, so containers of Cannery's engine have no network")
        return
    for rule in rules(layout.bridge, subnet):
        if run((iptables, *rule.command("-C")), env=tool_env(binaries, env), check=False).returncode != 0:
            run((iptables, *rule.command("-I")), env=tool_env(binaries, env))


def network_down(layout: Layout, binaries: Binaries | None, env: Mapping[str, str]) -> None:
    """Take back what `network_up` did. Forwarding goes off again only if it was off and no other bridge is there."""
    state = _read_state(layout)
    if "subnet" in state and binaries is not None:
        for iptables in _working_iptables(binaries, env):  # a rule may be where the first choice failed for a time
            for rule in rules(layout.bridge, Network(state["subnet"])):
                run((iptables, *rule.command("-D")), env=tool_env(binaries, env), check=False)
    if (NET_CLASS / layout.bridge).exists():
        _ioctl(SIOCSIFFLAGS, _request(layout.bridge, struct.pack("H", 0)))
        _ioctl(SIOCBRDELBR, layout.bridge.encode() + b"\0")
    if state.get("ip_forward") == "0" and not any(NET_CLASS.glob("*/bridge")):
        IP_FORWARD.write_text("0")
    layout.network_state.unlink(missing_ok=True)


def tool_env(binaries: Binaries, env: Mapping[str, str]) -> dict[str, str]:
    """Environment in which the unpacked programs find each other; the host's own iptables goes before ours."""
    host = search_path(env)
    own = f"{binaries.root}/usr/sbin:{binaries.root}/usr/bin"
    result = {**env, "PATH": f"{own}:{host}:{binaries.links}"}
    if shutil.which("iptables", path=host) is None:
        libraries = binaries.libraries
        result["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        result["XTABLES_LIBDIR"] = ":".join(str(folder / "xtables") for folder in libraries)
    return result


def _working_iptables(binaries: Binaries, env: Mapping[str, str]) -> Iterator[str]:
    """The host's iptables, else the unpacked one in each variant that this kernel takes, nft first.

    The program is that variant until the next one is asked for.
    """
    tools = tool_env(binaries, env)
    is_unpacked = "LD_LIBRARY_PATH" in tools
    for kind in ("nft", "legacy") if is_unpacked else ("the host's",):
        if is_unpacked:
            link_iptables(binaries, kind)
        found = shutil.which("iptables", path=tools["PATH"])
        try:
            if found and run((found, "--wait", "5", "-t", "nat", "-S"), env=tools, check=False).returncode == 0:
                yield found
        except CanneryError:
            return


def _read_state(layout: Layout) -> dict[str, str]:
    if not layout.network_state.is_file():
        return {}
    state = json.loads(layout.network_state.read_text())
    return {str(key): str(value) for key, value in state.items()}


def _ensure_bridge(name: str, subnet: Network) -> None:
    """Make the bridge, or give one that is there what a network manager of the host may have taken from it."""
    gateway = next(subnet.hosts())
    try:
        if not (NET_CLASS / name).exists():
            _ioctl(SIOCBRADDBR, name.encode() + b"\0")
            # Without one of its own a bridge has its lowest port's, and a container that comes or goes may change it:
            # the others then send to nobody until they ask anew, after up to 45 s.
            hardware = b"\x02\x42" + gateway.packed
            _ioctl(SIOCSIFHWADDR, _request(name, struct.pack("H6s", ARPHRD_ETHER, hardware)))
        _ioctl(SIOCSIFADDR, _address(name, str(gateway)))
        _ioctl(SIOCSIFNETMASK, _address(name, str(subnet.netmask)))
        _ioctl(SIOCSIFFLAGS, _request(name, struct.pack("H", IFF_UP)))
    except OSError as error:
        raise UnableError(f"the network bridge {name} cannot be made: {error.strerror}") from error


def _request(name: str, payload: bytes) -> bytes:
    """A `struct ifreq`: 16 bytes of name, then a union of 24."""
    return struct.pack("16s24s", name.encode(), payload)


def _address(name: str, address: str) -> bytes:
    return _request(name, struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(address)))


def _ioctl(number: int, argument: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        fcntl.ioctl(handle, number, argument)
