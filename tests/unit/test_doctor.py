"""Every check of `doctor` over made-up facts; whole trees are tests/edge/test_doctor_command.py's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cannery.catalog.catalog import ChipAccess, ImageUser
from cannery.catalog.compatibility import Drivers
from cannery.catalog.target import Target
from cannery.doctor import CHECKS, counts, diagnose, report_lines
from cannery.doctor.check import Check, DriverWish, State, Wanted
from cannery.host.facts import (
    EngineState,
    HostFacts,
    Node,
    User,
    info_fields,
    install_folder,
    user_in,
)
from cannery.vocab import Arch, Chip

MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
DRIVER = "/usr/local/Ascend/driver"
MOUNTS = ("/usr/local/dcmi", f"{DRIVER}/lib64", f"{DRIVER}/version.info", "/etc/ascend_install.info")
A2 = ChipAccess(names="Atlas A2", cards=8, managers=MANAGERS, mounts=MOUNTS, ranktable="1.0")
A5 = ChipAccess(names="Ascend 950", cards=8, managers=MANAGERS[::2], mounts=(DRIVER,))
DRIVERS = Drivers.model_validate(
    {
        "sources": {"notes": {"what": "the notes", "date": "2026-01-02"}},
        "drivers": [
            {"cann": "8.2.rc1", "series": ["24.1", "25.0"], "source": "notes", "whole": True},
            {"cann": "8.3.rc1", "series": ["25.3"], "source": "notes"},
            {"cann": "8.5.0", "series": ["25.0", "25.5"], "source": "notes", "whole": True},
        ],
        "reports": [{"cann": ["8.3.rc2"], "series": "24.1", "what": "a model fails", "source": "issue 5468"}],
        "pci": {"0xd802": "910b", "0xd803": "a3"},
    }
)
WANTED = Wanted({"910b": A2, "a3": A2.model_copy(update={"ranktable": "1.2"}), "950": A5}, DRIVERS)
TARGET = Target("8.5.0", Chip.A2, "ubuntu22.04", "3.11", Arch.ARM64)
FOR_A2 = replace(WANTED, target=TARGET, profile="stack", shm_bytes=16 << 30, shm_size="16g", image_bytes=20_000_000_000)
INFO = "Version=25.0.rc1.1\ncompatible_version_fw=[6.4.0,6.4.99],[7.0.0,7.7.99]\n"
NODES = tuple(Node(path, 1000, 1000, 0o660) for path in ("/dev/davinci0", "/dev/davinci1", *MANAGERS))
TEXTS = {
    f"{DRIVER}/version.info": INFO,
    "/usr/local/Ascend/firmware/version.info": "Version=7.7.0.1.231\n",
    "/etc/group": "HwHiAiUser:x:1000:\n",
    "/etc/passwd": "HwHiAiUser:x:1000:1000::/home/HwHiAiUser:/bin/bash\n",
    "/proc/filesystems": "nodev\toverlay\n",
    "/proc/cpuinfo": "CPU implementer\t: 0x48\n",
    "/proc/meminfo": "MemTotal:  263000000 kB\nMemAvailable: 200000000 kB\n",
    "/proc/sys/kernel/osrelease": "5.10.0\n",
    "/etc/hccn.conf": "address_0=10.0.0.1\naddress_1=10.0.0.2\n",
    "/proc/sys/fs/binfmt_misc/qemu-x86_64": "enabled\ninterpreter /usr/bin/qemu-x86_64-static\nflags: OCF\n",
}
SMI = "| npu-smi 25.0.rc1.1    Version: 25.0.rc1.1 |\n| 0     910B3               | OK            | 98.6\n"
HOST = HostFacts(
    live=True,
    nodes=NODES,
    pci=(("0xd802", "0x120000"), ("0xd802", "0x120000"), ("0x0222", "0x020000")),
    texts=TEXTS,
    paths=frozenset({*MOUNTS, f"{DRIVER}/lib64/driver/libascend_hal.so", "/usr/local/sbin/npu-smi"}),
    user=User("root", 0, frozenset({0})),
    engine=EngineState("28.0.1", "overlay2"),
    disk_free=100_000_000_000,
    disk_at="/var/lib/docker",
    shm=128 << 30,
    page=4096,
    smi=SMI,
)


FILE, UNSEEN = "images/drivers.yaml", "neither the PCI bus nor npu-smi shows which chip it is"


def found(facts: HostFacts, name: str, wanted: Wanted = FOR_A2) -> Check:
    """The one check of that id."""
    (check,) = [check for check in diagnose(facts, wanted) if check.id == name]
    return check


def with_texts(changes: dict[str, str | None]) -> HostFacts:
    """The host with other files; None takes one away."""
    made = {**TEXTS, **changes}
    return replace(HOST, texts={path: text for path, text in made.items() if text is not None})


def driver(version: str) -> HostFacts:
    return with_texts({f"{DRIVER}/version.info": INFO.replace("25.0.rc1.1", version)})


def test_a_healthy_host_is_ok_in_every_check() -> None:
    checks = diagnose(HOST, FOR_A2)
    assert [(check.id, check.message) for check in checks if check.state is not State.OK] == []
    assert {check.id for check in checks} == {
        *("devices.cards", "devices.managers", "devices.access", "chip", "driver.files", "driver.version"),
        *("firmware.version", "npu-smi", "docker.engine", "docker.runtime", "overlayfs", "disk", "emulation"),
        *("kernel", "page-size", "memory", "shm", "hccn"),
    }


@pytest.mark.parametrize(
    ("facts", "state", "message"),
    [
        (replace(HOST, nodes=NODES[1:]), State.WARNING, "2 NPUs on the PCI bus, 1 nodes: /dev/davinci1"),
        (replace(HOST, nodes=()), State.ERROR, "2 NPUs on the PCI bus, and no /dev/davinciN"),
        (replace(HOST, nodes=(), pci=()), State.ERROR, "the driver is installed, and there is no /dev/davinciN"),
        (replace(HOST, nodes=(), pci=(), texts={}), State.WARNING, "no NPU on this host"),
        (replace(HOST, nodes=(replace(NODES[0], is_device=False),)), State.WARNING, "2 NPUs on the PCI bus, 1 nodes"),
        (
            replace(HOST, nodes=(*NODES[:1], replace(NODES[1], is_device=False))),
            State.ERROR,
            "/dev/davinci1 is not a device",
        ),
        (replace(HOST, pci=None), State.OK, "2 cards: /dev/davinci{0,1}"),
    ],
)
def test_cards(facts: HostFacts, state: State, message: str) -> None:
    check = found(facts, "devices.cards")
    assert (check.state, check.message[: len(message)]) == (state, message)
    assert check.next or state is State.OK


def test_a_chip_that_is_named_without_a_profile_is_heeded() -> None:
    named = replace(WANTED, named=Chip.A3)
    check = found(HOST, "chip", named)
    assert (check.state, check.message) == (State.ERROR, "the host has 910b, Atlas A2 (PCI id), CHIP is a3")
    assert found(HOST, "chip", replace(WANTED, named=Chip.A2)).state is State.OK
    # No devmm_svm on a 950: with a hidden PCI bus the word decides what the host needs
    hidden = replace(HOST, pci=None, smi=None, nodes=tuple(n for n in NODES if not n.path.endswith("devmm_svm")))
    assert found(hidden, "devices.managers", WANTED).state is State.ERROR
    assert found(hidden, "devices.managers", replace(WANTED, named=Chip.A5)).state is State.OK


def test_a_driver_that_the_kernel_has_not_loaded_is_reported() -> None:
    facts = replace(with_texts({"/proc/modules": "ext4 1 0\n"}), nodes=())
    assert found(facts, "devices.cards").message.endswith("the kernel has no module of the driver loaded")
    assert "module" not in found(replace(HOST, nodes=()), "devices.cards").message


def test_managers_are_those_of_the_chip() -> None:
    facts = replace(HOST, nodes=tuple(node for node in NODES if node.path != "/dev/devmm_svm"))
    assert found(facts, "devices.managers").message == "missing beside the cards: /dev/devmm_svm"
    a5 = replace(FOR_A2, target=replace(TARGET, chip=Chip.A5))
    assert found(replace(facts, pci=None), "devices.managers", a5).state is State.OK


@pytest.mark.parametrize(
    ("user", "state"),
    [
        (User("root", 0, frozenset({0})), State.OK),
        (User("HwHiAiUser", 1000, frozenset({1000})), State.OK),
        (User("alice", 4000, frozenset({4000, 1000})), State.OK),
        (User("alice", 4000, frozenset({4000})), State.WARNING),
        (None, State.UNKNOWN),
    ],
)
def test_who_may_open_the_nodes(user: User | None, state: State) -> None:
    """Case U01 (vllm-project/vllm-ascend issue 9490)."""
    check = found(replace(HOST, user=user), "devices.access")
    assert check.state is state
    assert "HwHiAiUser:HwHiAiUser 0660" in check.message
    if state is State.WARNING:
        assert check.message.startswith("user alice cannot open any of the nodes (")
        assert "usermod -aG HwHiAiUser alice" in check.next
        assert check.next.endswith("--group-add 1000")


def test_nodes_of_root_alone_are_the_installers_to_mend() -> None:
    nodes = tuple(Node(path, 0, 0, 0o660) for path in (node.path for node in NODES))
    check = found(replace(HOST, nodes=nodes, user=User("alice", 4000, frozenset({4000}))), "devices.access")
    assert check.message == "user alice cannot open any of the nodes (0:0 0660)"
    assert check.next.startswith("the driver's installer makes them HwHiAiUser's, 0660")


def test_a_user_without_a_name_is_named_by_number() -> None:
    """Case U01: HCCL between several cards wants a line in /etc/passwd."""
    nobody = User("4321", 4321, frozenset({0}), is_named=False)
    check = found(replace(HOST, user=nobody), "devices.user")
    assert check.state is State.WARNING
    assert check.message.startswith("uid 4321 has no name here: HCCL between several cards fails for such a user (")
    assert check.next.startswith("`useradd -u 4321 NAME`; ")
    access = found(replace(HOST, user=nobody), "devices.access")
    assert access.next == "containers of a user other than root: --group-add 1000", "no name, nothing for usermod"
    assert "devices.user" not in {check.id for check in diagnose(replace(HOST, nodes=(), user=nobody), FOR_A2)}
    no_passwd = replace(with_texts({"/etc/passwd": None}), live=False, user=nobody)
    assert "devices.user" not in {check.id for check in diagnose(no_passwd, FOR_A2)}, "nothing is known of names"


@pytest.mark.parametrize(
    ("node", "state", "message"),
    [
        ((1000, 1000, 0o660), State.OK, "may open the nodes with --group-add 1000"),
        ((0, 0, 0o660), State.OK, "may open the nodes with --group-add 0"),
        ((0, 0, 0o666), State.OK, "may open the nodes"),
        ((0, 0, 0o600), State.ERROR, "cannot open /dev/davinci0 0:0 0600, /dev/davinci1 0:0 0600"),
        ((0, 1000, 0o640), State.ERROR, "cannot open /dev/davinci0 0:HwHiAiUser 0640"),
    ],
)
def test_whether_the_user_of_an_image_opens_the_nodes(node: tuple[int, int, int], state: State, message: str) -> None:
    wanted = replace(FOR_A2, user=ImageUser(name="trainer", uid=2000, gid=2000))
    facts = replace(HOST, nodes=tuple(Node(one.path, *node) for one in NODES))
    check = found(facts, "devices.image-user", wanted)
    assert check.state is state
    assert check.message.startswith(f"trainer (2000), the user of the image of stack, {message}")


def test_a_group_without_a_name_is_named_by_its_number() -> None:
    facts = replace(with_texts({"/etc/group": "users:x:100:\n"}), user=User("alice", 4000, frozenset({100})))
    assert found(facts, "devices.group").message == "the nodes belong to group 1000, which /etc/group does not name"
    assert "usermod" not in found(facts, "devices.access").next


@pytest.mark.parametrize(
    ("pci", "smi", "wanted", "state", "message"),
    [
        ((("0xd802", ""),), None, FOR_A2, State.OK, "910b, Atlas A2 (PCI id)"),
        (None, SMI, FOR_A2, State.OK, "910b, Atlas A2 (npu-smi)"),
        ((("0xd803", ""),), None, FOR_A2, State.ERROR, "the host has a3, Atlas A2 (PCI id), stack is for 910b"),
        ((("0xd803", ""),), None, WANTED, State.OK, "a3, Atlas A2 (PCI id)"),
        ((("0xd802", ""), ("0xd803", "")), None, WANTED, State.WARNING, "several chips: 910b, a3 (PCI id)"),
        (None, None, WANTED, State.UNKNOWN, UNSEEN),
        ((("0xd999", "0x120000"),), None, WANTED, State.UNKNOWN, f"{UNSEEN}; PCI id 0xd999 is in no row of {FILE}"),
    ],
)  # fmt: skip
def test_chip(
    pci: tuple[tuple[str, str], ...] | None, smi: str | None, wanted: Wanted, state: State, message: str
) -> None:
    """Case C03: an image of another chip is an error."""
    check = found(replace(HOST, pci=pci, smi=smi), "chip", wanted)
    assert (check.state, check.message) == (state, message)


@pytest.mark.parametrize(
    ("user_map", "step"),
    [("rootless", "run them by the system's engine (DOCKER_HOST), "), ("userns-remap", "docker run --userns host, ")],
)
def test_an_engine_whose_containers_have_none_of_the_hosts_groups(user_map: str, step: str) -> None:
    mapped = replace(HOST, engine=EngineState("28.0.1", "overlay2", user_map=user_map))
    check = found(mapped, "docker.users")
    assert (check.state, check.message) == (
        State.WARNING,
        (
            f"the engine has users of its own ({user_map}): nobody in its containers is in a group of the host; "
            f"{', '.join(node.path for node in NODES)} stay closed to its containers"
        ),
    )
    assert check.next.startswith(step)
    open_to_all = replace(mapped, nodes=tuple(replace(node, mode=0o666) for node in NODES))
    for facts in (HOST, open_to_all, replace(mapped, nodes=())):
        assert "docker.users" not in {check.id for check in diagnose(facts, FOR_A2)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Ascend910", "a3, Atlas A2"),  # an A3 prints it for each of its dies
        ("910B", "910, Atlas A2"),  # alone it is of the first family, whatever tags call 910b
        ("910B4-1", "910b, Atlas A2"),
        ("910ProB", "910, Atlas A2"),
        ("310P3", "310p, Atlas A2"),
        ("Ascend950PR", "950, Ascend 950"),
        ("NA", UNSEEN),
    ],
)
def test_the_chip_by_what_npu_smi_prints(name: str, message: str) -> None:
    """Rows as drivers print them: a die a line pair, the NPU's number and name in the first cell."""
    rows = "".join(
        f"| {npu}     {name:<20}| OK            | 166.5       38                0    / 0             |\n"
        f"| {die}     {npu * 2 + die}                   | 0000:9D:00.0  | 0           0    / 0     3131 / 65536    |\n"
        for npu in (0, 1)
        for die in (0, 1)
    )
    smi = f"| npu-smi 25.5.0                   Version: 25.5.0 |\n{rows}"
    wanted = replace(WANTED, chips={**WANTED.chips, "910": A2, "310p": A2})
    check = found(replace(HOST, pci=None, smi=smi), "chip", wanted)
    assert check.message == (message if message == UNSEEN else f"{message} (npu-smi)")


def test_a_driver_that_is_missing_in_part_or_whole() -> None:
    part = replace(HOST, paths=HOST.paths - {f"{DRIVER}/lib64"})
    assert found(part, "driver.files").message == f"the driver is missing, or a part of it: no {DRIVER}/lib64"
    library = replace(HOST, paths=HOST.paths - {f"{DRIVER}/lib64/driver/libascend_hal.so"})
    assert found(library, "driver.files").state is State.ERROR
    dcmi = replace(HOST, paths=HOST.paths - {"/usr/local/dcmi"})
    assert (found(dcmi, "driver.files").state, found(dcmi, "driver.files").message) == (
        State.WARNING,
        "no /usr/local/dcmi",
    )
    none = replace(with_texts({f"{DRIVER}/version.info": None}), paths=frozenset())
    assert found(none, "driver.version").message == f"no driver: there is no {DRIVER}/version.info"
    assert found(none, "driver.version").state is State.ERROR
    odd = with_texts({f"{DRIVER}/version.info": "Version=new\n"})
    assert (found(odd, "driver.version").state, found(odd, "driver.version").next) == (
        State.UNKNOWN,
        "`npu-smi info` prints it",
    )


def test_what_a_user_cannot_read_is_unknown_and_not_missing() -> None:
    lost = (f"{DRIVER}/lib64", f"{DRIVER}/version.info", f"{DRIVER}/lib64/driver/libascend_hal.so")
    files = ("/etc/docker/daemon.json", "/etc/hccn.conf", "/etc/hccl_rootinfo.json", "/usr/local/sbin/npu-smi")
    bare = with_texts(dict.fromkeys((*lost, *files)))
    facts = replace(bare, paths=HOST.paths - {*lost, *files}, unreadable=frozenset({*lost, *files}))
    checks = {check.id: (check.state, check.message) for check in diagnose(facts, FOR_A2)}
    hidden = "this user cannot read"
    assert {name: message for name, (state, message) in checks.items() if state is not State.OK} == {
        "driver.files": f"{hidden} {lost[0]}, {lost[2]}, {lost[1]}",
        "driver.version": f"{hidden} {lost[1]}",
        "npu-smi": f"{hidden} {files[3]}",
        **{
            name: f"{hidden} {path}" for name, path in zip(("docker.runtime", "hccn", "ranktable"), files, strict=False)
        },
    }
    assert State.ERROR not in {state for state, _ in checks.values()}
    part = replace(facts, paths=facts.paths - {"/usr/local/dcmi"}, unreadable=facts.unreadable - {lost[0]})
    assert found(part, "driver.files").state is State.ERROR, "what is known to be missing is said"


def test_nodes_that_a_user_cannot_read() -> None:
    assert found(replace(HOST, nodes=(), unreadable=frozenset({"/dev"})), "devices.cards").state is State.UNKNOWN
    some = replace(HOST, nodes=NODES[:-1], unreadable=frozenset({MANAGERS[-1]}))
    assert found(some, "devices.managers").message == f"this user cannot read {MANAGERS[-1]}"


def test_a_driver_at_another_place() -> None:
    facts = replace(
        with_texts(
            {"/etc/ascend_install.info": "Driver_Install_Path_Param=/opt/npu/\n", "/opt/npu/driver/version.info": INFO}
        ),
        paths=frozenset({path.replace("/usr/local/Ascend", "/opt/npu") for path in HOST.paths}),
    )  # fmt: skip
    assert found(facts, "driver.files").state is State.OK
    step = found(facts, "driver.place").next
    assert step.startswith("`build.py run` mounts it there; in a command of your own use ")
    assert "-v /opt/npu/driver/lib64:/usr/local/Ascend/driver/lib64:ro" in step
    assert found(facts, "driver.version").state is State.OK


@pytest.mark.parametrize(
    ("version", "cann", "state", "message", "step"),
    [
        ("25.0.rc1.1", "8.5.0", State.OK, "25.0.rc1.1 works with CANN 8.5.0 (the notes, 2026-01-02)", ""),
        ("25.5.0", "8.5.0.b160", State.OK, "25.5.0 works with CANN 8.5.0 (the notes, 2026-01-02)", ""),
        ("24.1.0", "8.3.rc2", State.WARNING, "24.1.0 with CANN 8.3.rc2: a model fails (issue 5468)",
         "a driver 25.3.x, or an image of CANN 8.2.rc1"),
        ("23.0.3", "8.3.rc2", State.WARNING,
         "23.0.3 with CANN 8.3.rc2: a model fails, with driver 24.1, which is newer (issue 5468)",
         "a driver 25.3.x"),
        ("24.1.rc3", "8.5.0", State.WARNING,
         "24.1.rc3 is older than the drivers that CANN 8.5.0 works with: 25.0.x, 25.5.x (the notes, 2026-01-02)",
         "a driver 25.5.x, or an image of CANN 8.2.rc1"),
        ("25.0.rc1", "8.3.rc1", State.UNKNOWN, "whether 25.0.rc1 works with CANN 8.3.rc1 is in no row of " + FILE,
         "known to work: 25.3.x, or an image of CANN 8.2.rc1 or 8.5.0; `build.py verify --require-npu` tries it"),
        ("26.0.rc1", "8.5.0", State.UNKNOWN, "whether 26.0.rc1 works with CANN 8.5.0 is in no row of " + FILE,
         "known to work: 25.0.x, 25.5.x; `build.py verify --require-npu` tries it"),
        ("25.5.0", "9.0.0", State.UNKNOWN, "whether 25.5.0 works with CANN 9.0.0 is in no row of " + FILE,
         "ask the release notes of CANN 9.0.0, or an image of CANN 8.5.0; `build.py verify --require-npu` tries it"),
    ],
)  # fmt: skip
def test_driver_against_cann(version: str, cann: str, state: State, message: str, step: str) -> None:
    """Case D12: what is reported is warned of, and what no row has is never ok."""
    check = found(driver(version), "driver.version", replace(FOR_A2, target=replace(TARGET, cann=cann)))
    assert (check.state, check.message, check.next) == (state, message, step)


def test_without_a_profile_the_cann_that_fits_the_driver_is_listed() -> None:
    check = found(driver("25.0.rc1"), "driver.version", WANTED)
    assert check.message == "25.0.rc1; works with CANN 8.2.rc1, 8.5.0 (images/drivers.yaml)"


@pytest.mark.parametrize(
    ("asked", "state"),
    [
        ("25.0.rc1", State.OK),
        ("25.3.0", State.WARNING),
        (">=24.1.rc1,<25.0.rc1", State.WARNING),
        (">=25.0.rc1", State.OK),
    ],
)
def test_driver_against_what_the_stack_asks_for(asked: str, state: State) -> None:
    check = found(HOST, "driver.asked", replace(FOR_A2, wish=DriverWish(asked, "verl 1.0", "a guide")))
    assert check.state is state
    assert "verl 1.0 asks for" in check.message


@pytest.mark.parametrize(
    ("firmware", "state"),
    [("7.7.0.1.231", State.OK), ("6.4.12.1.241", State.OK), ("7.8.0.6.201", State.ERROR), ("1.80.22", State.ERROR)],
)
def test_firmware_against_what_the_driver_takes(firmware: str, state: State) -> None:
    check = found(with_texts({"/usr/local/Ascend/firmware/version.info": f"Version={firmware}\n"}), "firmware.version")
    assert check.state is state
    assert check.message == f"{firmware}; the driver takes 6.4.0 to 6.4.99, 7.0.0 to 7.7.99"


def test_firmware_that_is_not_shown() -> None:
    assert (
        found(with_texts({"/usr/local/Ascend/firmware/version.info": None}), "firmware.version").state is State.UNKNOWN
    )
    facts = with_texts({f"{DRIVER}/version.info": "Version=25.0.rc1\n"})
    assert (
        found(facts, "firmware.version").message == "7.7.0.1.231; the driver does not name the firmware that it takes"
    )


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (SMI, State.OK),
        (
            "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi model initialized failed, ret is -8005",
            State.WARNING,
        ),
        ("dcmi module initialize failed. ret is -8020", State.WARNING),
        ("error while loading shared libraries: npu-smi", State.ERROR),
        ("no answer within 30 s", State.ERROR),
        (None, State.UNKNOWN),
    ],
)
def test_what_npu_smi_answers(answer: str | None, state: State) -> None:
    """Case D03."""
    assert found(replace(HOST, smi=answer), "npu-smi").state is state


def test_no_npu_smi() -> None:
    assert (
        found(replace(HOST, paths=HOST.paths - {"/usr/local/sbin/npu-smi"}, smi=None), "npu-smi").state is State.WARNING
    )


@pytest.mark.parametrize(
    ("engine", "paths", "state"),
    [
        (EngineState("28.0", "overlay2"), (), State.OK),
        (EngineState("28.0", "vfs"), (), State.WARNING),
        (EngineState(problem="no Docker engine is running", hint="start it"), (), State.WARNING),
        (None, ("/usr/bin/docker",), State.UNKNOWN),
        (None, (), State.WARNING),
    ],
)
def test_engine(engine: EngineState | None, paths: tuple[str, ...], state: State) -> None:
    assert found(replace(HOST, engine=engine, paths=frozenset(paths)), "docker.engine").state is state


ABSENT = EngineState(problem="no Docker engine is running", hint="install it", is_absent=True)
NAMED = EngineState(problem="DOCKER_HOST does not answer", hint="start it")
RUNS = EngineState("28.0", "overlay2")
NO_NAMESPACES = "this host allows no namespaces"


@pytest.mark.parametrize(
    ("engine", "no_sandbox", "states"),
    [
        (ABSENT, "", {"docker.engine": State.OK, "sandbox": State.OK}),
        (ABSENT, NO_NAMESPACES, {"docker.engine": State.WARNING, "sandbox": State.WARNING}),
        (NAMED, "", {"docker.engine": State.WARNING, "sandbox": State.OK}),
        (RUNS, NO_NAMESPACES, {"docker.engine": State.OK, "sandbox": State.OK}),
        (RUNS, None, {"docker.engine": State.OK}),
    ],
)
def test_sandbox(engine: EngineState, no_sandbox: str | None, states: dict[str, State]) -> None:
    facts = replace(HOST, engine=engine, no_sandbox=no_sandbox)
    checks = {check.id: check for check in diagnose(facts, FOR_A2) if check.id in {"docker.engine", "sandbox"}}
    assert {name: check.state for name, check in checks.items()} == states
    if states.get("sandbox") is State.WARNING:
        assert checks["sandbox"].message == f"images can be assembled, not verified: {NO_NAMESPACES}"
        assert checks["sandbox"].next.endswith("docs/guides/registries.md#foundations")


RUNTIME = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime"
ENTRY = {"runtimes": {"ascend": {"path": RUNTIME}}}


@pytest.mark.parametrize(
    ("settings", "installed", "state", "message"),
    [
        (None, False, State.OK, "no ascend runtime"),
        ("", False, State.OK, "no ascend runtime"),
        ("{", False, State.ERROR, "/etc/docker/daemon.json is not JSON"),
        ("[]", False, State.ERROR, "/etc/docker/daemon.json is JSON, but not an object"),
        (
            json.dumps({"default-runtime": "ascend"}),
            True,
            State.ERROR,
            "/etc/docker/daemon.json names ascend as the default",
        ),
        (json.dumps({"data-root": "/data"}), True, State.WARNING, f"{RUNTIME} is installed, and"),
        (json.dumps(ENTRY), False, State.ERROR, "/etc/docker/daemon.json names the ascend runtime at"),
        (json.dumps(ENTRY), True, State.OK, f"ascend, {RUNTIME} (with --runtime ascend;"),
        (
            json.dumps({**ENTRY, "default-runtime": "ascend"}),
            True,
            State.OK,
            f"ascend, {RUNTIME} (for every container,",
        ),
    ],
)
def test_ascend_runtime(settings: str | None, installed: bool, state: State, message: str) -> None:
    """Case D08."""
    facts = with_texts({"/etc/docker/daemon.json": settings})
    check = found(replace(facts, paths=facts.paths | ({RUNTIME} if installed else set())), "docker.runtime")
    assert (check.state, check.message[: len(message)]) == (state, message)


@pytest.mark.parametrize(
    ("free", "wanted", "state"),
    [
        (20_000_000_000, FOR_A2, State.OK),
        (19_000_000_000, FOR_A2, State.WARNING),
        (9_000_000_000, FOR_A2, State.ERROR),
        (23_000_000_000, WANTED, State.WARNING),
        (None, FOR_A2, State.UNKNOWN),
    ],
)
def test_disk(free: int | None, wanted: Wanted, state: State) -> None:
    """Case S01: an image of 24 GB does not fit every disk."""
    assert found(replace(HOST, disk_free=free), "disk", wanted).state is state


def test_what_frees_the_disk_is_of_who_makes_the_images() -> None:
    full = replace(HOST, disk_free=0)
    assert "docker system df" in found(full, "disk").next
    alone = found(replace(full, engine=ABSENT), "disk")
    assert "CANNERY_CACHE" in alone.next
    assert "docker" not in alone.next


USUAL = "an image for NPUs takes about 22.4 GB with its CANN base"


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        (WANTED, USUAL),
        (FOR_A2, "the image of stack takes about 18.6 GB with its base"),
        (replace(FOR_A2, image_bytes=5 << 30, layers_only=True), USUAL),
        (
            replace(FOR_A2, image_bytes=30 << 30, layers_only=True),
            "the image of stack takes about 30.0 GB, and its CANN base comes on top",
        ),
    ],
)
def test_what_counts_for_the_size_of_an_image_is_reported(wanted: Wanted, takes: str) -> None:
    assert found(HOST, "disk", wanted).message == f"93.1 GB free at /var/lib/docker; {takes}"
    assert found(replace(HOST, disk_free=None), "disk", wanted).message.endswith(f"; {takes}")


@pytest.mark.parametrize(
    ("page", "words", "state"),
    [
        (65536, "64 KB: jemalloc", State.WARNING),
        (16384, "16 KB", State.WARNING),
        (4096, "4 KB", State.OK),
        (None, "only the running host", State.UNKNOWN),
    ],
)
def test_page_size(page: int | None, words: str, state: State) -> None:
    check = found(replace(HOST, page=page), "page-size")
    assert (check.state, check.message[: len(words)]) == (state, words)
    assert ("--with-lg-page=16" in check.next) is (state is State.WARNING)


@pytest.mark.parametrize(("shm", "state"), [(64 << 20, State.WARNING), (32 << 30, State.OK), (None, State.UNKNOWN)])
def test_shared_memory(shm: int | None, state: State) -> None:
    """Case D15."""
    check = found(replace(HOST, shm=shm), "shm")
    assert check.state is state
    assert ("--shm-size 16g" in check.next) is (state is State.WARNING)


def test_memory_below_the_shared_memory_of_a_container() -> None:
    facts = with_texts({"/proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n"})
    assert found(facts, "memory").state is State.WARNING
    assert found(facts, "memory", WANTED).state is State.OK
    assert found(with_texts({"/proc/meminfo": None}), "memory").state is State.UNKNOWN


@pytest.mark.parametrize(
    ("text", "wanted", "state"),
    [
        ('{"version": "1.0"}', FOR_A2, State.OK),
        ('{"version": "1.2"}', FOR_A2, State.WARNING),
        ("{}", FOR_A2, State.WARNING),
        ("[]", FOR_A2, State.WARNING),
        ("{", FOR_A2, State.WARNING),
    ],
)
def test_ranktable_of_another_chip(text: str, wanted: Wanted, state: State) -> None:
    """Case D10 (gpustack/runtime pull 27)."""
    check = found(with_texts({"/etc/hccl_rootinfo.json": text}), "ranktable", wanted)
    assert check.state is state
    assert ("mv /etc/hccl_rootinfo.json" in check.next) is (state is State.WARNING)


def test_a_ranktable_of_a_chip_that_nobody_described() -> None:
    facts = replace(with_texts({"/etc/hccl_rootinfo.json": '{"version": "3"}'}), pci=None)
    assert found(facts, "ranktable", replace(FOR_A2, target=replace(TARGET, chip=Chip.A5))).state is State.UNKNOWN


def test_addresses_of_the_network_cards() -> None:
    assert found(with_texts({"/etc/hccn.conf": "address_0=10.0.0.1\n"}), "hccn").message.endswith(
        "no address of card 1"
    )
    none = found(with_texts({"/etc/hccn.conf": None}), "hccn")
    assert (none.state, "hccn_tool" in none.next) == (State.OK, True)


@pytest.mark.parametrize(
    ("registered", "arch", "state"),
    [
        ("enabled\nflags: OCF\n", Arch.AMD64, State.OK),
        ("enabled\nflags: OC\n", Arch.AMD64, State.WARNING),
        ("disabled\nflags: OCF\n", Arch.AMD64, State.ERROR),
        (None, Arch.AMD64, State.ERROR),
        (None, Arch.ARM64, State.OK),
    ],
)
def test_emulation(registered: str | None, arch: Arch, state: State) -> None:
    facts = with_texts({"/proc/sys/fs/binfmt_misc/qemu-x86_64": registered})
    wanted = replace(FOR_A2, target=replace(TARGET, arch=arch))
    assert found(facts, "emulation", wanted).state is state


def test_an_image_of_another_cpu_is_an_error_where_the_npus_are() -> None:
    """Case C07."""
    wanted = replace(FOR_A2, target=replace(TARGET, arch=Arch.AMD64))
    assert found(HOST, "arch", wanted).next == "ARCH=arm64 (vllm-project/vllm-ascend issue 2521)"
    assert not [check for check in diagnose(replace(HOST, nodes=()), wanted) if check.id == "arch"]


def test_overlayfs_and_kernel_that_are_not_shown() -> None:
    assert found(with_texts({"/proc/filesystems": "ext4\n"}), "overlayfs").next == "modprobe overlay"
    bare = replace(HOST, texts={})
    assert {found(bare, name).state for name in ("overlayfs", "kernel", "memory")} == {State.UNKNOWN}


def test_inside_a_container() -> None:
    for mark in ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"):
        assert found(replace(HOST, paths=HOST.paths | {mark}), "container").state is State.WARNING


def test_everything_that_is_not_ok_has_a_next_step() -> None:
    bare = HostFacts(nodes=NODES, pci=(("0xd802", "0x120000"),))
    for facts in (bare, HostFacts(), replace(HOST, texts={}), replace(HOST, paths=frozenset())):
        for check in diagnose(facts, FOR_A2):
            assert check.next or check.state is State.OK, check


def test_report_lines_are_aligned_and_counted() -> None:
    checks = (Check("a", State.OK, "good"), Check("longer", State.ERROR, "bad", "mend it"))
    assert list(report_lines(checks)) == [
        "ok       a       good",
        "error    longer  bad",
        "                 → mend it",
        "1 ok, 1 error",
    ]
    assert counts(checks) == {State.OK: 1, State.WARNING: 0, State.ERROR: 1, State.UNKNOWN: 0}


def test_small_parsers() -> None:
    assert info_fields("Version=25.0.rc1 \nx\nA=b=c\n") == {"Version": "25.0.rc1", "A": "b=c"}
    assert install_folder("A=1\nDriver_Install_Path_Param=/opt/x/\n") == "/opt/x"
    assert install_folder("") == "/usr/local/Ascend"
    assert install_folder("Driver_Install_Path_Param=/usr/local/../local/Ascend/\n") == "/usr/local/Ascend"
    passwd, group = "a:x:1:2::/:\n", "b:x:3:c,a\nd:x:4:\n"
    assert user_in(passwd, group, "a") == User("a", 1, frozenset({2, 3}))
    assert user_in(passwd, group, ".") is None
    assert user_in(passwd, group, "1") == User("a", 1, frozenset({2, 3}))
    assert user_in(passwd, group, "7") == User("7", 7, frozenset({0}), is_named=False)
    assert user_in("7:x:8:9::/:\n", "", "7") == User("7", 8, frozenset({9})), "a name of digits is a name"
    assert user_in(passwd, group, str(2**32 - 1)) is None, "no system counts so far"


def test_every_check_is_listed_once() -> None:
    assert len(CHECKS) == len(set(CHECKS))


def test_a_profile_for_several_hosts_needs_hccn_conf() -> None:
    """W10."""
    host = with_texts({"/etc/hccn.conf": None})
    assert found(host, "hccn").state is State.OK
    assert found(host, "hccn", replace(FOR_A2, several_hosts=True)).state is State.WARNING
