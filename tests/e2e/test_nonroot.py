"""An image that runs as a user: who that is, where it and any other user can write, what pip does, how verify sees it.

One small profile, built and verified by build.py on the stand-in.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from uv import find_uv_bin

from cannery.context import read_context
from tests.e2e.engine_fixtures import ROOT, Cannery, Image, small_checkout, started
from tests.images.test_lines import profile_text

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

USER = "HwHiAiUser"
HOME = f"/home/{USER}"
CACHES = "/var/cache/cannery"
SITE = "/opt/user/lib/python3.11/site-packages"
VERIFY = ("python", "/opt/cannery/verify.py", "--json")
# No system package: the layer needs no mirror then.
COMPONENTS = ("pip", "numpy", "torch", "torch-npu")
WHEEL = "tiny_thing-1.0-py3-none-any.whl"


@pytest.fixture(scope="session")
def early() -> None:
    """These tests need no other image: none is begun beside them."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, cannery: Cannery) -> Cannery:
    text = profile_text(str(read_context(ROOT).arch), COMPONENTS, user=USER)
    return small_checkout(cannery, tmp_path_factory.mktemp("nonroot"), "nonroot", text)


@pytest.fixture(scope="module")
def built(checkout: Cannery) -> Iterator[Image]:
    """The image, which build.py has verified as its own user."""
    done = checkout.build_py("image", "nonroot", "--json")
    image = Image(json.loads(done.stdout))
    yield image
    checkout.docker("image", "rm", *image.table["references"])


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, built: Image) -> Path:
    """A folder with a wheel of one module and one command, uv's wheel, and a project for an editable install."""
    assert built.reference
    folder = tmp_path_factory.mktemp("wheels")
    with zipfile.ZipFile(folder / "uv-1.0-py3-none-any.whl", "w") as wheel:
        program = zipfile.ZipInfo("uv-1.0.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, Path(find_uv_bin()).read_bytes())
        wheel.writestr("uv-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1.0\n")
        wheel.writestr("uv-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("uv-1.0.dist-info/RECORD", "")
    info = "tiny_thing-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("tiny_thing.py", "def say(): print('tiny')\n")
        # numpy is the profile's, and there is no index to fetch it from.
        needs = "Requires-Dist: numpy\n"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n{needs}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntiny-say = tiny_thing:say\n")
        wheel.writestr(f"{info}/RECORD", "")
    project = folder / "project"
    project.mkdir()
    build = '[build-system]\nrequires = []\nbuild-backend = "setuptools.build_meta"\n'
    (project / "pyproject.toml").write_text(f'{build}[project]\nname = "own-code"\nversion = "2"\n')
    (project / "own_code.py").write_text("x = 1\n")
    folder.chmod(0o755)
    return folder


@pytest.fixture
def container(cannery: Cannery, built: Image, wheels: Path) -> Iterator[str]:
    """A container of the image that sleeps, without network, with the wheels in it."""
    name = started(cannery, ["--network", "none", "-v", f"{wheels}:/wheels:ro", built.reference, "sleep", "infinity"])
    yield name
    cannery.docker("rm", "--force", name)


def verified(cannery: Cannery, image: Image, options: tuple[str, ...], *wanted: str) -> dict[str, Any]:
    """Verify's checks by id, from a container started with `options`; verify has to pass."""
    command = ("run", "--rm", "--network", "none", "--shm-size", "16g", *options, image.reference, *VERIFY, *wanted)
    report = json.loads(cannery.docker(*command).stdout)
    return {check["id"]: check for check in report["checks"]}


def test_verify_ran_as_the_user(built: Image) -> None:
    report = built.table["report"]
    told = {check["id"]: check for check in report["checks"]}
    assert report["result"] == "passed"
    wanted = f"the image runs as {USER} (1000), home {HOME}; this process is {USER} (1000)"
    assert told["static.user"]["message"] == wanted
    assert told["static.writable"]["status"] == "passed"
    assert told["import.torch_npu"]["status"] == "passed"


def test_who_and_where_however_a_process_starts(cannery: Cannery, built: Image, container: str) -> None:
    look = 'whoami; id -u; id -g; echo "$HOME"; touch "$HOME/mine" && stat -c %U "$HOME/mine"'
    wanted = [USER, "1000", "1000", HOME, USER]
    run = cannery.docker("run", "--rm", built.reference, "sh", "-c", f"{look}; pwd").stdout.split()
    assert run == [*wanted, HOME]
    for shell in (("sh", "-c"), ("bash", "-lc")):
        assert cannery.docker("exec", container, *shell, look).stdout.split() == wanted
    # Kubernetes' runAsNonRoot looks at the image, and knows numbers alone.
    config = json.loads(cannery.docker("image", "inspect", built.reference).stdout)[0]["Config"]
    assert (config["User"], config["WorkingDir"]) == ("1000", HOME)


def test_torch_npu_comes_from_the_venv(cannery: Cannery, container: str) -> None:
    # That it imports is verify's to say; to do it again here costs seconds.
    code = "import sys, importlib.util as u; print(sys.executable, u.find_spec('torch_npu').origin)"
    told = cannery.docker("exec", container, "python", "-c", code).stdout.split()
    assert told == ["/opt/venv/bin/python", "/opt/venv/lib/python3.11/site-packages/torch_npu/__init__.py"]


@pytest.mark.parametrize("user", ["1000", "4321"], ids=["the image's", "OpenShift's"])
def test_pip_installs_and_verify_tells_it(cannery: Cannery, container: str, user: str) -> None:
    """A number alone has group 0, which is all that OpenShift's arbitrary users have."""

    def inside(*command: str, check: bool = True) -> str:
        return cannery.docker("exec", "--user", user, container, *command, check=check).stdout

    inside("pip", "install", "--no-index", f"/wheels/{WHEEL}")
    assert inside("python", "-c", "import tiny_thing; print(tiny_thing.__file__)").strip() == f"{SITE}/tiny_thing.py"
    assert inside("tiny-say") == "tiny\n"
    report = json.loads(inside(*VERIFY, "--only", "static.wheels", "--only", "static.files", check=False))
    told = {check["id"]: (check["status"], check["message"]) for check in report["checks"]}
    assert told["static.wheels"] == ("failed", f"tiny-thing 1.0 in {SITE} is not in the manifest")
    assert told["static.files"][0] == "passed", "nothing was put into /opt/venv"
    inside("python", "-m", "pip", "uninstall", "--yes", "tiny-thing")
    assert json.loads(inside(*VERIFY, "--only", "static.wheels"))["result"] == "passed"


@pytest.mark.parametrize("user", ["1000", "4321"])
def test_uv_installs_beside_the_profile(cannery: Cannery, container: str, user: str) -> None:
    """uv takes nothing of /opt/venv for installed, and is told; without that it may write nowhere, and does nothing."""

    def inside(command: str, code: int = 0) -> str:
        done = cannery.docker("exec", "--user", user, container, "sh", "-c", command, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    inside("pip install --no-index /wheels/uv-*.whl")
    inside(f"uv pip install --no-deps --no-index /wheels/{WHEEL}", 2)
    inside(f"uv pip install --config-file /opt/cannery/uv.toml --no-index /wheels/{WHEEL}")
    told = inside("python -c 'import tiny_thing, numpy; print(tiny_thing.__file__, numpy.__file__)'").split()
    assert told == [f"{SITE}/tiny_thing.py", "/opt/venv/lib/python3.11/site-packages/numpy/__init__.py"]
    assert inside("tiny-say") == "tiny\n"
    inside("uv pip uninstall --config-file /opt/cannery/uv.toml tiny-thing")
    inside("pip uninstall --yes uv")
    assert json.loads(inside("python /opt/cannery/verify.py --json --only static.wheels"))["result"] == "passed"


def test_the_pip_of_an_environment_of_ones_own_installs_there(cannery: Cannery, container: str) -> None:
    own = f"{HOME}/own/lib/python3.11/site-packages"
    # The stand-in's Python cannot put pip into an environment.
    make = f"python -m venv --without-pip {HOME}/own && cp -r /opt/venv/lib/python3.11/site-packages/pip {own}/"
    install = f"{HOME}/own/bin/python -m pip install --no-index --no-deps /wheels/{WHEEL}"
    look = f"{HOME}/own/bin/python -c 'import tiny_thing; print(tiny_thing.__file__)'"
    told = cannery.docker("exec", container, "sh", "-c", f"{make} && {install} && {look}").stdout
    assert told.splitlines()[-1] == f"{own}/tiny_thing.py"


def test_an_editable_install_is_in_force_in_the_venvs_python(cannery: Cannery, container: str) -> None:
    def inside(*command: str) -> str:
        return cannery.docker("exec", container, *command).stdout

    inside("cp", "-r", "/wheels/project", f"{HOME}/project")
    inside("pip", "install", "--no-index", "--no-build-isolation", "--no-deps", "-e", f"{HOME}/project")
    told = inside("/opt/venv/bin/python", "-c", "import own_code; print(own_code.__file__)").strip()
    assert told == f"{HOME}/project/own_code.py"


def test_nobody_may_not_plant_code_that_others_import(cannery: Cannery, container: str) -> None:
    command = ("exec", "--user", "65534:65534", container, "touch")
    for place in (SITE, HOME, "/opt/venv/lib/python3.11/site-packages"):
        assert cannery.docker(*command, f"{place}/planted.py", check=False).returncode == 1, place
    cannery.docker(*command, f"{CACHES}/triton/kernel", f"{CACHES}/ascend/log/x")
    # Sticky, as /tmp is: another user reads it, and does not take it away.
    assert cannery.docker("exec", container, "rm", "-f", f"{CACHES}/triton/kernel", check=False).returncode == 1


def test_another_user_on_a_read_only_root(cannery: Cannery, built: Image) -> None:
    options = ("--user", "65534:65534", "--read-only")
    told = verified(cannery, built, options, "--level", "static", "--level", "import")
    assert told["static.writable"]["status"] == "warning"
    assert told["static.writable"]["message"].endswith(f"start it with --tmpfs {CACHES}")
    assert told["import.torch_npu"]["status"] == "passed"
    assert told["static.user"]["message"].endswith("this process is nobody (65534)")
    given = verified(cannery, built, (*options, "--tmpfs", CACHES), "--only", "static.writable")
    assert given["static.writable"]["status"] == "warning"
    assert given["static.writable"]["message"].endswith("start it with -e HOME=/tmp")
    home = ("--tmpfs", CACHES, "--tmpfs", "/tmp", "--env", "HOME=/tmp")
    moved = verified(cannery, built, (*options, *home, "--workdir", "/tmp"), "--only", "static.writable")
    assert moved["static.writable"]["status"] == "passed"


def test_a_number_without_a_name_is_told(cannery: Cannery, built: Image) -> None:
    """Case U01: HCCL looks its user up."""
    told = verified(cannery, built, ("--user", "4321:4321"), "--only", "static.user", "--only", "static.writable")
    assert told["static.user"]["status"] == "warning"
    assert told["static.user"]["message"].startswith("uid 4321 has no line in /etc/passwd: HCCL between several cards")
    assert told["static.writable"]["status"] == "warning"
    assert told["static.writable"]["message"].startswith(f"HOME={HOME}: {HOME} belongs to 1000:0, mode 0775, and Ray")
    given = verified(cannery, built, ("--user", "4321:0"), "--only", "static.writable")
    assert given["static.writable"]["status"] == "passed"


OURS = f"{USER}:x:1000:"


@pytest.mark.parametrize(
    ("passwd", "group", "says"),
    [
        (
            f"{USER}:x:2000:1000::{HOME}:/bin/sh",
            OURS,
            f"{USER}:x:2000:1000::{HOME}:/bin/sh, the profile says {USER} with number 1000",
        ),
        (
            "ubuntu:x:1000:1000::/home/ubuntu:/bin/sh",
            OURS,
            f"ubuntu:x:1000:1000::/home/ubuntu:/bin/sh, the profile says {USER} with number 1000",
        ),
        (
            "other:x:2000:2000::/:/bin/sh",
            "users1:x:1000:",
            f"/etc/group has users1:x:1000:, the profile says {USER} with number 1000",
        ),
        (f"{USER}:x:1000:0::{HOME}:/bin/sh", OURS, "the profile says main group 1000 and home"),
        (f"{USER}:x:1000:1000::/opt/mine:/bin/sh", OURS, f"the profile says main group 1000 and home {HOME}"),
        (f"{USER}:x:1000:1000:of the driver:{HOME}:/bin/sh", OURS, ""),
    ],
)
def test_a_base_that_has_the_user(
    cannery: Cannery, checkout: Cannery, built: Image, passwd: str, group: str, says: str
) -> None:
    (rendered,) = (checkout.root / "out").glob("nonroot-*")
    base = json.loads((rendered / "rootfs/opt/cannery/manifest.json").read_text())["base"]
    mounts = ("-v", f"{rendered}/tools:/tools:ro", "-v", f"{rendered}/rootfs/etc:/run/cannery/etc:ro")
    venv = f"--venv {base['python_home']}/bin/python3:/opt/user"
    script = (
        f"echo '{passwd}' >> /etc/passwd; echo '{group}' >> /etc/group; "
        f"sh /tools/system.sh --user {USER}:1000:1000 {venv} --writable {CACHES} apt 7 && "
        f"grep -c ^{USER}: /etc/passwd && stat -c '%u:%g %a' {HOME} /opt/user {CACHES}"
    )
    command = ("run", "--rm", "--network", "none", *mounts, "--entrypoint", "bash", base["reference"], "-c", script)
    done = cannery.docker(*command, check=False)
    assert done.returncode == bool(says), done.stderr
    assert says in done.stderr
    assert ("user: {name: …, uid: …, gid: …}" in done.stderr) is bool(says)
    assert says or done.stdout.splitlines()[-4:] == ["1", "1000:0 775", "1000:0 775", "0:0 1777"]
