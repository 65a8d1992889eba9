"""Made-up NPU hosts: a full A2 and A3, one that keeps things elsewhere, one with two cards."""

from __future__ import annotations

from cannery.host.facts import NPU_SMI, RANKTABLE, HostNpus

MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
DRIVER = ("/usr/local/Ascend/driver/lib64", "/usr/local/Ascend/driver/version.info", "/etc/ascend_install.info")
DCMI = "/usr/local/dcmi"
HCCN = "/etc/hccn.conf"


def nodes(*cards: int) -> frozenset[str]:
    """The nodes of these cards, and those that every card needs."""
    return frozenset({*MANAGERS, *(f"/dev/davinci{n}" for n in cards)})


FULL_A2 = HostNpus(nodes(*range(8)), frozenset({DCMI, *DRIVER, NPU_SMI[0], HCCN, RANKTABLE}), 1000, "1.0")
# Its ranktable is a leftover of an A2 (case D10).
FULL_A3 = HostNpus(nodes(*range(16)), frozenset({DCMI, *DRIVER, NPU_SMI[1], HCCN, RANKTABLE}), 1000, "1.0")
# No dcmi, npu-smi in an unusual place, nodes that belong to root.
OTHERWISE = HostNpus(nodes(*range(8)), frozenset({*DRIVER, NPU_SMI[2]}), 0)
PARTIAL = HostNpus(nodes(3, 4), frozenset({DCMI, *DRIVER, NPU_SMI[0]}), 2000)

# Name -> (host, its chip).
HOSTS = {
    "a2-full": (FULL_A2, "910b"),
    "a3-full": (FULL_A3, "a3"),
    "a2-otherwise": (OTHERWISE, "910b"),
    "a2-two-cards": (PARTIAL, "910b"),
}
