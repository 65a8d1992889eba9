"""The network interfaces of this host, and their addresses."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from cannery.errors import UnableError, UsageError
from cannery.run.container import Interface

SIOCGIFADDR = 0x8915
# One line an address: 32 hex digits, index, prefix length, scope (00 global), flags, name.
IF_INET6 = Path("/proc/net/if_inet6")
GLOBAL = "00"


def interface_names() -> tuple[str, ...]:
    """Return the names of the interfaces that lead to other hosts."""
    return tuple(name for _, name in socket.if_nameindex() if name != "lo")


def read_interface(name: str) -> Interface:
    """Return an interface of this host by name, with its address: IPv4 where it has one.

    Raises `UsageError` for one that does not exist, `UnableError` for one without an address.
    """
    names = tuple(found for _, found in socket.if_nameindex())
    if name not in names:
        raise UsageError(f"--interface: this host has no {name!r}", hint=f"it has {', '.join(names)}")
    address = _ipv4(name) or _ipv6(name)
    if not address:
        hint = f"`ip addr show {name}`; this host has {', '.join(names)}"
        raise UnableError(f"--interface: {name} has no address", hint=hint)
    return Interface(name, address)


def _ipv4(name: str) -> str:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some:
        try:
            answer = fcntl.ioctl(some.fileno(), SIOCGIFADDR, request)
        except OSError:  # it has none
            return ""
    return socket.inet_ntoa(answer[20:24])


def _ipv6(name: str) -> str:
    try:
        rows = [line.split() for line in IF_INET6.read_text().splitlines()]
    except OSError:  # a kernel without IPv6
        return ""
    found = (row[0] for row in rows if row[5] == name and row[3] == GLOBAL)
    return next((str(ipaddress.IPv6Address(bytes.fromhex(digits))) for digits in found), "")
