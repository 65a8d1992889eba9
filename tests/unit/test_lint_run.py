"""The linter of a user's own command: each test a command as people write them, most of them from public reports."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cannery.catalog.catalog import ChipAccess
from cannery.catalog.documents import YamlDocument
from cannery.errors import UsageError
from cannery.lint.command import run_lines
from cannery.lint.container import Case, Container, Ground, Remark
from cannery.lint.files import containers_of
from cannery.lint.rules import RULES, lint_container
from cannery.vocab import Arch, Chip, Severity, size_bytes

MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
DRIVER = "/usr/local/Ascend/driver"
LIB = f"{DRIVER}/lib64"
MOUNTS = ("/usr/local/dcmi", f"{DRIVER}/lib64", f"{DRIVER}/version.info", "/etc/ascend_install.info")
CHIPS = {
    "910b": ChipAccess(names="A2", cards=8, managers=MANAGERS, mounts=MOUNTS, socs=("ascend910b1",)),
    "a3": ChipAccess(names="A3", cards=16, managers=MANAGERS, mounts=MOUNTS, socs=("ascend910_9391",)),
    "950": ChipAccess(names="A5", cards=8, managers=MANAGERS[::2], mounts=("/usr/local/dcmi", DRIVER)),
}
GROUND = Ground(CHIPS, {"stack": "32g"})
CANN = "quay.io/ascend/cann:8.5.0-910b-ubuntu22.04-py3.11"
OURS = "stack:8.5.0-910b-ubuntu22.04-py3.11-0123456789ab"
NODES = " ".join(f"--device {node}" for node in MANAGERS)
FILES = " ".join(f"-v {path}:{path}:ro" for path in (*MOUNTS, "/usr/local/bin/npu-smi"))
MOUNTED = " ".join(f"-v {node}:{node}" for node in MANAGERS)
RUNTIME = "docker run --shm-size 32g --runtime=ascend -e ASCEND_VISIBLE_DEVICES=0"
TOOLKIT = "/usr/local/Ascend/ascend-toolkit"
ALONE = "docker run --shm-size 32g --device /dev/davinci0"
UNREAD = "note run.text.unread"
# A line that nothing is wrong with.
GOOD = f"docker run --rm -it --shm-size 32g --device /dev/davinci0 --device /dev/davinci1 {NODES} {FILES}"
NEW = f"{GOOD} --device /dev/ummu -v {DRIVER}:{DRIVER}".replace("--device /dev/devmm_svm", "")
ONE = GOOD.replace(" --device /dev/davinci1", "")


def read(text: str) -> Container:
    (line,) = run_lines(text).lines
    assert isinstance(line, Container)
    return line


def remarks(text: str, ground: Ground = GROUND) -> tuple[Remark, ...]:
    return lint_container(read(text), ground)


def codes(text: str, ground: Ground = GROUND) -> list[str]:
    return [f"{one.severity} {one.code}" for one in remarks(text, ground)]


@pytest.mark.parametrize("image", [CANN, OURS, "quay.io/ascend/vllm-ascend:v0.11.0rc1", "a.b/c:1", "$IMAGE"])
def test_a_right_line_has_no_remarks(image: str) -> None:
    assert remarks(f"{GOOD} {image} bash -c 'a b'") == ()


def test_paths_may_end_in_a_slash_as_installation_guides_have_them() -> None:
    text = GOOD.replace(f"{DRIVER}/lib64:{DRIVER}/lib64", f"{DRIVER}/lib64/:{DRIVER}/lib64/")
    assert remarks(f"{text} quay.io/ascend/vllm-ascend:v0.11.0rc1 bash") == ()
    assert remarks(f"{text.replace('/usr/local/dcmi', '/usr/local/dcmi/')} {CANN}") == ()


def test_a_mistyped_node_and_no_driver_are_both_named_with_their_fix() -> None:
    """Case D01 (vllm-project/vllm-ascend issue 1440)."""
    text = f"docker run --shm-size 16g --device /dev/davinci0 {NODES.replace('davinci_m', 'dav_m')} {CANN} bash"
    node, driver, files, smi = remarks(text)
    assert node.what == (
        "--device /dev/dav_manager: no NPU host has a node /dev/dav_manager; did you mean /dev/davinci_manager?"
    )
    assert (node.word, node.fix) == ("--device /dev/dav_manager", "--device /dev/davinci_manager")
    assert driver.what == f"{DRIVER}/lib64 is not mounted (--device /dev/davinci0 needs it)"
    assert driver.fix == f"-v {DRIVER}/lib64:{DRIVER}/lib64:ro"
    assert [one.severity for one in (node, driver, files, smi)] == [*(Severity.ERROR,) * 2, "warning", "note"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/dev/davinci_0", "/dev/davinci0"),
        ("/dev/davinci-3", "/dev/davinci3"),
        ("/dev/davnici12", "/dev/davinci12"),
        ("/dev/devm_svm", "/dev/devmm_svm"),
        ("/dev/hisi_hdcs", "/dev/hisi_hdc"),
        ("dev/hisi_hdc", "/dev/hisi_hdc"),
        ("davinci_manager", "/dev/davinci_manager"),
    ],
)
def test_mistyped_nodes(written: str, meant: str) -> None:
    found = [one for one in remarks(f"{GOOD} --device {written} {CANN}") if one.code == "run.node.unknown"]
    assert [one.fix for one in found] == [f"--device {meant}"]


@pytest.mark.parametrize(
    "node", ["/dev/fuse", "/dev/infiniband/uverbs0", "/dev/nvidia0", "/dev/vdavinci100", "/dev/dvpp_cmdlist", "$X"]
)
def test_other_nodes_are_not_judged(node: str) -> None:
    assert codes(f"{GOOD} --device {node} {CANN}") == []


# (options behind a good line's, image, what is said) or, with "docker run", a whole line.
LINES = [
    # nodes
    (f"docker run --shm-size 32g --device /dev/davinci0 {FILES} {CANN}", ["error run.node.missing"] * 3),
    (f"docker run --shm-size 32g {NODES} {FILES} {CANN}", ["error run.node.none"]),
    (f"docker run --shm-size 32g {CANN}", ["warning run.node.none"]),
    ("docker run ubuntu:22.04 ls", []),
    (f"{GOOD} --device '/dev/davinci*' {CANN}", ["error run.node.unknown"]),
    (f"{GOOD} --device /dev/davinci8 {CANN}", ["warning run.node.foreign"]),
    (f"{GOOD} --device /dev/davinci8 {CANN.replace('910b', 'a3')}", []),
    (f"{ALONE} {MOUNTED} {FILES} {CANN}", ["error run.node.missing"] * 3 + ["warning run.node.mounted"] * 3),
    (f"{GOOD} -v /dev:/dev {CANN}", ["warning run.node.mounted"]),
    (f"docker run --shm-size 32g -v /dev:/dev/ {FILES} {CANN}", ["warning run.node.none", "warning run.node.mounted"]),
    (f"{GOOD} -v /dev/davinci0:/dev/davinci0 {CANN}", []),
    (f"{GOOD} -v /dev/davinci7:/dev/davinci7 --device-cgroup-rule 'c *:* rwm' {CANN}", []),
    (f"{ALONE} $N --rm {FILES} {CANN}", ["warning run.node.missing"] * 3 + [UNREAD]),
    # a card whose number a shell fills in
    (f"docker run --shm-size 32g --device=/dev/davinci$i {FILES} {CANN}", ["error run.node.missing"] * 3),
    (f"docker run --shm-size 32g --device=/dev/davinci$i {NODES} {FILES} {CANN}", []),
    (f"docker run --shm-size 32g --device=/dev/davinciN {NODES} {FILES} {CANN}", []),
    (f"docker run --shm-size 32g --device $CARD {NODES} {FILES} {CANN}", []),
    (f"{ALONE} --device=/dev/davinci$i {NODES} {FILES} -e ASCEND_RT_VISIBLE_DEVICES=0,1 {CANN}", []),
    (f"{ALONE} --device=/dev/davinci$i {NODES} {FILES} -e ASCEND_VISIBLE_DEVICES=0 i:1", ["note run.visible.unread"]),
    ("docker run --device $CARD ubuntu", []),
    # which chip it is, told by nodes that the newest alone has, where a tag does not tell it
    (f"{NEW} quay.io/ascend/vllm-ascend:{{{{version}}}}", []),
    (f"{NEW.replace('--device /dev/ummu', '')} quay.io/ascend/vllm-ascend:$VERSION-a5", []),
    (f"{NEW.replace('--device /dev/ummu', '')} quay.io/ascend/vllm-ascend:v1", ["error run.node.missing"]),
    # D11: a5 has no devmm_svm, and needs the whole driver
    (f"{GOOD} {CANN.replace('910b', 'a5')}", ["error run.driver.missing", "warning run.node.foreign"]),
    (f"{GOOD.replace(' -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi:ro', '')} {CANN}", ["note run.driver.smi"]),
    (f"{GOOD.replace('bin/npu-smi:ro', 'sbin/npu-smi:ro')} {CANN}", []),
    # D05
    (f"{GOOD} --privileged {CANN}", ["warning run.privileged"]),
    (f"{GOOD} --privileged=false {CANN}", []),
    # D06
    (f"{GOOD} -e ASCEND_RT_VISIBLE_DEVICES=0,1 {CANN}", []),
    (f"{GOOD} -e ASCEND_RT_VISIBLE_DEVICES=4 {CANN}", ["error run.visible.index"]),
    (f"{GOOD} -e ASCEND_RT_VISIBLE_DEVICES=0-1 {CANN}", ["error run.visible.text"]),
    (f"{GOOD} -e ASCEND_RT_VISIBLE_DEVICES={'9' * 5000} {CANN}", ["error run.visible.text"]),
    (f"{GOOD.replace('32g', '9' * 5000)} {CANN}", ["error run.shm"]),
    (f"{GOOD} -e ASCEND_VISIBLE_DEVICES=6,7 {CANN}", ["error run.visible.nodes"]),
    (f"{GOOD} -e ASCEND_VISIBLE_DEVICES=0-1 {CANN}", ["note run.visible.unread"]),
    (f"{GOOD} -e ASCEND_VISIBLE_DEVICES=all {CANN}", ["error run.visible.text"]),
    # D08
    (f"docker run --shm-size 32g --runtime ascend -e ASCEND_VISIBLE_DEVICES=0-3 {CANN}", []),
    (f"docker run --shm-size 32g --runtime ascend {CANN}", ["warning run.visible.none"]),
    (f"docker run --shm-size 32g -e ASCEND_VISIBLE_DEVICES=0 {CANN}", ["note run.visible.unread"]),
    (f"{GOOD} --runtime ascend -e ASCEND_VISIBLE_DEVICES=0,1 {CANN}", ["warning run.runtime.mixed"]),
    (f"{RUNTIME} -e ASCEND_RUNTIME_OPTIONS=NODRV {CANN}", ["warning run.driver.missing", "warning run.driver.files"]),
    (f"{GOOD} --runtime ascend -e ASCEND_VISIBLE_DEVICES=0-3 {CANN}", ["warning run.runtime.mixed"]),
    (
        f"{GOOD} --runtime ascend -e ASCEND_VISIBLE_DEVICES=0-3 -e ASCEND_RT_VISIBLE_DEVICES=3 {CANN}",
        ["warning run.runtime.mixed"],
    ),
    (
        f"{GOOD} --runtime ascend -e ASCEND_VISIBLE_DEVICES=0-3 -e ASCEND_RT_VISIBLE_DEVICES=4 {CANN}",
        ["error run.visible.index", "warning run.runtime.mixed"],
    ),
    (f"docker run --shm-size 32g --device huawei.com/npu=0 {CANN}", []),
    # D15
    (f"{GOOD.replace('--shm-size 32g', '')} {CANN}", ["warning run.shm"]),
    (f"{GOOD.replace('32g', '16')} {CANN}", ["warning run.shm"]),
    (f"{ONE.replace('32g', '1g')} {CANN}", []),
    (f"{ONE.replace('32g', '512m')} {CANN}", ["warning run.shm"]),
    (f"{ONE.replace('32g', '1g')} {OURS}", ["warning run.shm"]),
    (f"{GOOD.replace('32g', '16g')} {CANN}", []),
    (f"{GOOD.replace('32g', '16g')} {OURS}", ["warning run.shm"]),
    (f"{GOOD.replace('32g', 'big')} {CANN}", ["error run.shm"]),
    (f"{GOOD.replace('--shm-size 32g', '--ipc=host')} {CANN}", []),
    (f"{GOOD.replace('--shm-size 32g', '-v /dev/shm:/dev/shm')} {CANN}", []),
    # the engine
    (f"{GOOD} --gpus all {CANN}", ["error run.gpus"]),
    # mounts
    (f"{GOOD} -v models:/models -v $PWD:/w -v ./a:/b {CANN}", []),
    (f"{GOOD} -v ~/x:/y {CANN}", []),
    (f"{GOOD} -v /a:/b:ro,z -v ${{A:-/x}}:/c -v /d:/e:$MODE {CANN}", []),
    (f"{GOOD} --mount dst=/a --mount type=$T,source=/x --mount 'type=bind,\"src=/b,c\",dst=/b' {CANN}", []),
    (f"{GOOD} -v /usr/local/dcmi:/usr/local/dcmi:ro {CANN}", []),
    # an image may have no CANN, whatever its name, and be run with the host's
    (f"{GOOD} -v /usr/local/Ascend:/usr/local/Ascend mine:1", ["warning run.mount.hides"]),
    (f"{GOOD} -v /usr/local/Ascend:/usr/local/Ascend {CANN}", ["warning run.mount.hides"]),
    (f"{GOOD} -v /x:/usr/local/Ascend {CANN}", ["error run.mount.hides"]),
    (f"{GOOD} -v /usr/local:/usr/local {OURS}", ["error run.mount.hides"]),
    (f"{GOOD} -v /a:/b:rbind,idmap=uids=0-1-10 {CANN}", []),
    # colons that are no ends of a part, and what a guide leaves to its reader
    (f"{GOOD} -v $(f a:b):/x -v `g a:b`:/y:ro -v ${{A:-/b}}:/z {CANN}", []),
    (f"{GOOD} -v <dir>:<dir>:ro -v <a b>/c:/d -v /e:<in it>/f -e ASCEND_VISIBLE_DEVICES=<card> {CANN}", []),
    # as old guides have it: the folders of lib64, one by one
    (f"{GOOD.replace(f'-v {LIB}:{LIB}:ro', f'-v {LIB}/driver:{LIB}/driver -v {LIB}/common:{LIB}/common')} {CANN}", []),
    (f"{GOOD.replace(f'-v {LIB}:{LIB}:ro', f'-v {LIB}/driver:{LIB}/driver')} {CANN}", ["warning run.driver.missing"]),
    (f"{GOOD.replace(f'-v {LIB}:{LIB}:ro', f'-v {LIB}/common:{LIB}/common')} {CANN}", ["error run.driver.missing"]),
    (f"{GOOD} -v {TOOLKIT}:{TOOLKIT} {OURS}", ["warning run.mount.hides"]),
    (f"{GOOD} -v /a:/usr/local/Ascend/cann-8.5.0 {CANN}", ["error run.mount.hides"]),
    (f"{GOOD} -v /usr/local/bin:/usr/local/bin {CANN}", ["warning run.mount.hides"]),
    (f"{GOOD} -v /a:/opt/venv {OURS}", ["error run.mount.hides"]),
    (f"{GOOD} -v /a:/opt/venv {CANN}", []),
    (f"{GOOD} --mount type=bind,src=/a,dst=/opt/src {OURS}", ["error run.mount.hides"]),
    (f"{GOOD} -v /a:/opt/src/verl {OURS}", ["warning run.mount.source"]),
    (f"{GOOD} -v /a:/opt/src/verl/data {OURS}", []),
    # environment
    (f"{GOOD} -e PYTHONPATH=/w {CANN}", ["warning run.env.lost"]),
    (f"{GOOD} -e PYTHONPATH=/w:/usr/local/Ascend/ascend-toolkit/latest/python/site-packages {CANN}", []),
    # CANN's images set it again in their entry point; Cannery's have it in ENV alone.
    (f"{GOOD} -e LD_LIBRARY_PATH=/w:$LD_LIBRARY_PATH {CANN}", ["warning run.env.lost"]),
    (f"{GOOD} -e LD_LIBRARY_PATH {OURS}", ["error run.env.lost"]),
    (f"{GOOD} -e PATH=/w {CANN}", ["error run.env.lost"]),
    (f"{GOOD} -e LD_LIBRARY_PATH=/usr/local/Ascend/cann/devlib {CANN}", ["error run.env.devlib"]),
    (f"{GOOD} -e LD_PRELOAD=/usr/local/lib/libjemalloc.so.2 {OURS}", []),
    (f"{GOOD} -e LD_PRELOAD=/w/mine.so {CANN}", []),
    (f"{GOOD} --entrypoint bash {OURS}", []),
    # the image
    (f"{GOOD} {OURS}-standin", ["error run.standin"]),
    (f"{GOOD} {OURS}-trial-standin", ["error run.standin"]),
    (f"{GOOD} {CANN} -it", ["error run.image.behind"]),
    (f"{GOOD} {CANN} --device /dev/davinci2 -v /a:/b", ["error run.image.behind"]),
    (f"{GOOD} {CANN} --shm-size=1g bash", ["error run.image.behind"]),
    (f"{GOOD} {CANN} --model x --device npu", []),
    (f"{GOOD} {CANN} bash -c x", []),
    (f"{GOOD} --entrypoint vllm {CANN} -d x", []),
    (f"{GOOD} --device=/dev/davinci{{2,3}} {CANN}", []),
    (f"{GOOD} '' {CANN}", ["error run.image.path"]),
    (f"{GOOD} /dev/davinci1 {CANN}", ["error run.image.path"]),
    (f"{GOOD} \u2014rm {CANN}", ["error run.image.path"]),
    # U01, U03
    (f"{GOOD} --user 65534 {CANN}", ["warning run.user.group"]),
    (f"{GOOD} --user 65534 --group-add 1000 {CANN}", []),
    (f"{GOOD} -u 1000 {CANN}", ["note run.user.name"]),
    (f"{GOOD} -u 4321 --group-add 1000 {CANN}", ["note run.user.name"]),
    (f"{GOOD} -u 4321 {CANN}", ["warning run.user.group", "note run.user.name"]),
    (f"{GOOD} -u 0 -v ~/.cache:/root/.cache {CANN}", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), LINES, ids=[text.replace(GOOD, "…")[:90] for text, _ in LINES])
def test_remarks(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


@pytest.mark.parametrize("text", [text for text, expected in LINES if expected])
def test_every_remark_names_its_word_and_a_fix(text: str) -> None:
    for one in remarks(text):
        assert one.word in one.what
        assert one.fix
        assert one.why


def test_every_rule_reports_something_in_these_tests() -> None:
    cases = [Case(container, ground) for container in map(read, TEXTS) for ground in (GROUND, A3_HOST)]
    quiet = [rule.__name__ for rule in RULES if not any(next(iter(rule(case)), None) for case in cases)]
    assert quiet == []


A3_HOST = Ground(CHIPS, chip=Chip.A3, arch=Arch.ARM64)
HOST = [
    (f"{GOOD} {CANN}", ["error run.chip"]),
    (f"{GOOD} --platform linux/amd64 {CANN.replace('910b', 'a3')}", ["error run.arch"]),
    (f"{GOOD} --platform linux/arm64/v8 --device /dev/davinci15 $IMAGE", []),
]
TEXTS = [text for text, _ in (*LINES, *HOST)]


@pytest.mark.parametrize(("text", "expected"), HOST)
def test_remarks_for_a_host_that_is_named(text: str, expected: list[str]) -> None:
    """Cases C03 and C07."""
    assert codes(text, A3_HOST) == expected


@pytest.mark.parametrize(
    "written", ["/dev/davinci0-3", "/dev/davinci4,6-7", "'/dev/davinci[0-1]'", "davinci0-1", "'/dev/davinci*'"]
)
def test_several_cards_in_one_device_are_one_fault(written: str) -> None:
    assert codes(f"docker run --shm-size 32g --device {written} {NODES} {FILES} {CANN}") == ["error run.node.unknown"]


@pytest.mark.parametrize("option", ["--pythn3 x", "--sharing x", "--quux x"])
def test_an_option_that_is_like_none_of_dockers(option: str) -> None:
    (one,) = remarks(f"docker run {option} img")
    assert (one.code, one.word) == ("run.option", option.split(maxsplit=1)[0])


def test_an_index_that_counts_the_hosts_cards_is_counted_anew() -> None:
    """Case D06 (Project-HAMi/HAMi issue 1894)."""
    cards = GOOD.replace("davinci0", "davinci3").replace("davinci1", "davinci4")
    text = f"{cards} -e ASCEND_RT_VISIBLE_DEVICES=4 {CANN}"
    (one,) = remarks(text)
    assert "index 4 is outside 0..1" in one.what
    assert one.fix == "-e ASCEND_RT_VISIBLE_DEVICES=1"


def test_a_group_that_only_the_host_knows_is_left_to_its_shell() -> None:
    """Case U01 (vllm-project/vllm-ascend issue 9490)."""
    (one,) = remarks(f"{GOOD} --user 65534 {CANN}")
    assert one.fix == '--group-add "$(stat -c %g /dev/davinci_manager)"'


@pytest.mark.parametrize(
    ("text", "number"),
    [("16g", 16 << 30), ("512MB", 512 << 20), ("64m", 64 << 20), ("16", 16), ("1.5G", 3 << 29), ("x", None)],
)
def test_sizes(text: str, number: int | None) -> None:
    assert size_bytes(text) == number


OPTIONS = (
    *("--device", "-v", "-e", "--mount", "--runtime", "--user", "--shm-size", "-itv", "--privileged", "-x", "--", "-"),
    *("$MORE", "${MORE:-}"),
)
VALUES = (
    *("/dev/davinci0", "/dev/davinci{0..2}", "/dev/dav_manager:", "/dev/davinci0-3", "/dev/davinci$i", ":", "::", "="),
    *("a=", "=a", "", "type=bind,src", "$X", "'", '"', "\\", "#", "~", "$(f a:b):/x", "ascend", "9" * 40, CANN, OURS),
    *("ASCEND_RT_VISIBLE_DEVICES=0,0", "ASCEND_VISIBLE_DEVICES=-", "LD_PRELOAD=x", "PYTHONPATH", "<i>", "{a,b}"),
)


@given(st.lists(st.one_of(st.sampled_from((*OPTIONS, *VALUES)), st.text(max_size=6)), max_size=12))
def test_no_words_are_a_defect(words: list[str]) -> None:
    try:
        lines = run_lines("docker run " + " ".join(words)).lines
    except UsageError:
        return
    for line in lines:
        if isinstance(line, Container):
            assert all(one.what and one.code for one in lint_container(line, GROUND))


SERVICE = {
    "image": CANN,
    "devices": ["/dev/davinci0", "/dev/dav_manager:/dev/dav_manager", "/dev/devmm_svm", {"source": "/dev/hisi_hdc"}],
    "volumes": [f"{path}:{path}" for path in MOUNTS[:1]] + [{"type": "bind", "source": "./a", "target": "/a"}],
    "environment": {"ASCEND_RT_VISIBLE_DEVICES": 4},
    "shm_size": "32gb",
    "privileged": False,
}


def service_codes(service: dict[str, object]) -> list[tuple[str, str]]:
    document = YamlDocument("compose.yaml", {"services": {"a": service}}, {})
    (container,) = containers_of([document])
    return [(one.code, one.word) for one in lint_container(container, GROUND)]


def test_a_compose_service_is_judged_by_the_same_rules() -> None:
    assert service_codes(SERVICE)[:3] == [
        ("run.node.unknown", "services.a.devices[1]: /dev/dav_manager:/dev/dav_manager"),
        ("run.driver.missing", "services.a.devices[0]: /dev/davinci0"),
        ("run.visible.index", "services.a.environment: ASCEND_RT_VISIBLE_DEVICES=4"),
    ]


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ({"privileged": True}, "run.privileged"),
        ({"privileged": "${ALL:-true}"}, "run.privileged"),
        ({"image": f"${{IMAGE:-{OURS}-standin}}"}, "run.standin"),
        ({"shm_size": 64}, "run.shm"),
        ({"gpus": "all"}, "run.gpus"),
        ({"deploy": {"resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1}]}}}}, "run.gpus"),
        ({"user": "65534"}, "run.user.group"),
        ({"environment": ["PYTHONPATH=/w"]}, "run.env.lost"),
        ({"tmpfs": "/opt/venv", "image": OURS}, "run.mount.hides"),
        ({"command": "--privileged bash"}, "run.image.behind"),
        ({"volumes": ["/dev:/dev"]}, "run.node.mounted"),
        ({"extends": "b"}, "run.text.unread"),
    ],
)
def test_keys_of_a_service(service: dict[str, object], code: str) -> None:
    assert code in [found for found, _ in service_codes({**SERVICE, **service})]


KEYS = ("image", "devices", "volumes", "environment", "shm_size", "tmpfs", "deploy", "gpus", "command", "extends")
POD_KEYS = (
    "containers",
    "volumes",
    "env",
    "volumeMounts",
    "resources",
    "limits",
    "securityContext",
    "hostPath",
    "name",
)
YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from((*KEYS, *POD_KEYS, "source", "target", "type", "options")), inner)
    ),
    max_leaves=8,
)


@given(YAML, st.sampled_from(["services", "jobs", "spec"]))
def test_no_file_is_a_defect(value: object, kind: str) -> None:
    document = {"services": {"a": value}, "jobs": {"a": {"container": value, "services": value}}, "spec": value}
    known = {"apiVersion": "v1", "kind": "Pod", "spec": value} if kind == "spec" else {kind: document[kind]}
    try:
        containers = containers_of([YamlDocument("x", known, {})])
    except UsageError:
        return
    for container in containers:
        lint_container(container, GROUND)


def test_the_rules_go_through_a_long_line_in_the_time_that_its_length_takes() -> None:
    def seconds(count: int) -> float:
        line = read(f"docker run {'-v /a:/usr/local/Ascend --device /dev/davinvi0 ' * count} {CANN}")
        begin = time.process_time()
        assert len(lint_container(line, GROUND)) > 0
        return time.process_time() - begin

    short = min(seconds(200) for _ in range(3))
    assert seconds(1600) < 40 * short + 0.1  # 64 times of it, where each mount is held against every other
