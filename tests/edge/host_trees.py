"""Trees of files in the place of NPU hosts: what the driver, the kernel and Docker leave on one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ASCEND = "usr/local/Ascend"
MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
DRIVER_INFO = """\
Version={version}
ascendhal_version=7.35.23
aicpu_version=1.0
Innerversion=V100R001C21SPC002B220
compatible_version=[V100R001C17],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]
compatible_version_fw=[6.4.0,6.4.99],[7.0.0,7.7.99]
package_version={version}
"""
FIRMWARE_INFO = "Version={version}\nfirmware_version=1.0\ncompatible_version_drv=[23.0.rc2,23.0.rc2.],[25.0,25.0.]\n"
KUNPENG = "processor\t: 0\nBogoMIPS\t: 200.00\nCPU implementer\t: 0x48\n"
XEON = "processor\t: 0\nvendor_id\t: GenuineIntel\n"
MEMINFO = "MemTotal:       1584234112 kB\nMemAvailable:   1500000000 kB\n"
RUNTIME = f"/{ASCEND}/Ascend-Docker-Runtime/ascend-docker-runtime"


@dataclass(frozen=True)
class Tree:
    """A host's tree, and the ways in which one is not healthy."""

    root: Path

    def write(self, path: str, text: str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def npus(self, count: int, device: str = "0xd802") -> None:
        """NPUs on the bus, and a network card of the same maker."""
        for number in range(count):
            self._pci(f"0000:{number:02x}:00.0", device, "0x120000")
        self._pci("0000:ff:00.0", "0x0222", "0x020000")

    def _pci(self, address: str, device: str, kind: str) -> None:
        folder = f"sys/bus/pci/devices/{address}"
        for name, text in (("vendor", "0x19e5"), ("device", device), ("class", kind)):
            self.write(f"{folder}/{name}", f"{text}\n")

    def nodes(self, count: int, mode: int = 0o660) -> None:
        for name in (*(f"davinci{number}" for number in range(count)), *MANAGERS):
            self.write(f"dev/{name}").chmod(mode)

    def driver(self, version: str = "25.0.rc1.1", firmware: str = "7.7.0.1.231") -> None:
        self.write(f"{ASCEND}/driver/version.info", DRIVER_INFO.format(version=version))
        self.write(f"{ASCEND}/firmware/version.info", FIRMWARE_INFO.format(version=firmware))
        self.write(f"{ASCEND}/driver/lib64/driver/libascend_hal.so")
        self.write(
            "etc/ascend_install.info",
            "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Path_Param=/usr/local/Ascend\n",
        )
        self.write("usr/local/dcmi/libdcmi.so")
        self.write("usr/local/sbin/npu-smi")
        self.write("proc/modules", "drv_davinci_intf_host 16384 0 - Live 0x0\n")

    def system(self, cpu: str = KUNPENG, group: str = "HwHiAiUser") -> None:
        mine = f"{group}:x:{os.getgid()}:alice\n" if group else ""
        self.write("etc/group", f"{mine}docker:x:4242:alice\nusers:x:4243:\n")
        self.write("etc/passwd", "root:x:0:0::/root:/bin/bash\nalice:x:4000:4243::/home/alice:/bin/bash\n")
        self.write("etc/os-release", 'PRETTY_NAME="openEuler 22.03 (LTS-SP4)"\n')
        self.write("proc/cpuinfo", cpu)
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/filesystems", "nodev\ttmpfs\nnodev\toverlay\n\text4\n")
        self.write("proc/sys/kernel/osrelease", "5.10.0-216.0.0.115.oe2203sp4.aarch64\n")
        self.write("usr/bin/dockerd")

    def runtime(self, path: str = RUNTIME, *, installed: bool = True) -> None:
        settings = {"default-runtime": "ascend", "runtimes": {"ascend": {"path": path, "runtimeArgs": []}}}
        self.write("etc/docker/daemon.json", json.dumps(settings))
        if installed:
            self.write(path.lstrip("/"))

    def hccn(self, count: int) -> None:
        lines = (f"address_{number}=10.20.0.{number + 1}\nnetmask_{number}=255.255.255.0" for number in range(count))
        self.write("etc/hccn.conf", "\n".join(lines) + "\n")


def healthy_a2(root: Path) -> Tree:
    """Eight A2, driver 25.0.rc1.1, ascend runtime, on a Kunpeng."""
    tree = Tree(root)
    tree.npus(8)
    tree.nodes(8)
    tree.driver()
    tree.system()
    tree.runtime()
    tree.hccn(8)
    return tree


def healthy_a3(root: Path) -> Tree:
    """Sixteen dies of A3, driver 25.3.rc1, on x86."""
    tree = Tree(root)
    tree.npus(16, "0xd803")
    tree.nodes(16)
    tree.driver("25.3.rc1", "7.7.0.9.220")
    tree.system(XEON)
    tree.hccn(16)
    tree.write("etc/hccl_rootinfo.json", '{"version": "1.2", "server_count": "1"}')
    return tree


def without_npu(root: Path) -> Tree:
    """A build machine."""
    tree = Tree(root)
    tree.system(XEON)
    (tree.root / "sys/bus/pci/devices").mkdir(parents=True)
    return tree
