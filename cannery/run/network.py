"""The interface by which the hosts of one job talk, and the variables that name it to HCCL, gloo and the rest."""

from __future__ import annotations

from dataclasses import dataclass

HOST_NETWORK = "host"
# Without them each library takes the first interface that it finds, which on many hosts is docker's own bridge.
ADDRESS = "HCCL_IF_IP"
NAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class Interface:
    """A network interface, and its address on this host ("" where it is another host's: each has its own)."""

    name: str
    address: str = ""

    @property
    def is_loopback(self) -> bool:
        """Whether it leads to no other host."""
        return self.address.startswith("127.")


def interface_env(interface: Interface | None) -> tuple[tuple[str, str], ...]:
    """Return the variables that bind a container on the host's network to `interface`."""
    if interface is None:
        return ()
    return ((ADDRESS, interface.address), *((name, interface.name) for name in NAMES))
