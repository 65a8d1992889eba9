"""Every CANN line stands in: one small profile, built and verified by build.py on the stand-in of each line.

What each line must look like is written here, not read from images/bases: taken from the lines' public Dockerfiles.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cannery.context import read_context
from tests.e2e.engine_fixtures import ROOT, Cannery, Image, layers_of, small_checkout, started
from tests.images.test_quickstart import PYTHON, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.engine

ASCEND = "/usr/local/Ascend"
TOOLKIT_SET_ENV = f"{ASCEND}/ascend-toolkit/set_env.sh"
ATB_SET_ENV = f"{ASCEND}/nnal/atb/set_env.sh"
LATEST = f"{ASCEND}/ascend-toolkit/latest"
# The set's own pins are quickstart's, so that the wheels are in the cache already.
LIKE = "quickstart"
COMPONENTS = ("jemalloc", "pip", "numpy", "torch", "torch-npu")
# What CANN's own Python programs import (fact T21), as modules.
CANN_IMPORTS = (
    "attr", "Cython", "numpy", "decorator", "sympy", "cffi", "yaml", "pathlib2", "psutil", "google.protobuf", "scipy",
    "requests", "absl", "ml_dtypes", "tornado",
)  # fmt: skip
HOMES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_AICPU_PATH", "TOOLCHAIN_HOME")
# torch and torch_npu 2.13 have the new C++ ABI, whatever ATB a line's ENV names (facts T12).
ABI = 1
PROBE = """\
import json, torch, torch_npu
maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(json.dumps({"abi": int(torch.compiled_with_cxx11_abi()), "maps": sorted(maps), "npus": torch.npu.device_count()}))
"""


@dataclass(frozen=True)
class Line:
    """One CANN line: its folder in the image, what `latest` leads to, the interpreter, the scripts, the base's ATB."""

    cann: str
    home: str
    real: str
    python: str
    set_env: tuple[str, ...]
    base_abi: int

    @property
    def version(self) -> str:
        """As CANN itself writes it."""
        return self.cann.upper()


def _old(cann: str, python: str) -> Line:
    return Line(cann, LATEST, f"{ASCEND}/ascend-toolkit/{cann.upper()}", python, (TOOLKIT_SET_ENV, ATB_SET_ENV), 0)


def _new(cann: str, python: str) -> Line:
    home = f"{ASCEND}/cann-{cann}"
    scripts = (TOOLKIT_SET_ENV, f"{home}/share/info/ascendnpu-ir/bin/set_env.sh", ATB_SET_ENV)
    return Line(cann, home, home, python, scripts, 1)


# The first one has quickstart's base.
LINES = (
    _new("8.5.0", "3.11.14"),
    _old("8.1.rc1", "3.11.12"),
    _old("8.2.rc1", "3.11.13"),
    _old("8.3.rc1", "3.11.13"),
    _old("8.3.rc2", "3.11.13"),
)


@dataclass(frozen=True)
class Standing:
    """A line with its image, a container of it that sleeps, and what `build.py image` ended with."""

    line: Line
    image: Image
    container: str
    code: int


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, cannery: Cannery) -> Cannery:
    """build.py on a checkout whose one profile is `lines`, locked for this host's arch."""
    text = profile_text(str(read_context(ROOT).arch))
    return small_checkout(cannery, tmp_path_factory.mktemp("lines"), "lines", text)


def profile_text(arch: str, components: Sequence[str] = COMPONENTS, **more: object) -> str:
    """The smallest set that imports torch_npu, with quickstart's pins and day; `more` are further fields."""
    like: dict[str, Any] = yaml.safe_load((ROOT / f"images/profiles/{LIKE}.yaml").read_text())
    return yaml.safe_dump(
        {
            "summary": "the smallest set that imports torch_npu",
            "base": "standin",
            "target": {**like["target"], "arch": [arch]},
            "exclude_newer": like["exclude_newer"],
            "components": [pin for pin in like["components"] if pin["name"] in components],
            "may_skip": {"standin": like["may_skip"]["standin"]},
            **more,
        }
    )


@pytest.fixture(scope="module")
def build(checkout: Cannery) -> Iterator[Callable[[Line], Standing]]:
    """Build, verify and start the image of a line, each once; what stood on the engine for these tests alone goes."""
    containers: list[str] = []
    references: list[str] = []

    @cache
    def stand(line: Line) -> Standing:
        done = checkout.build_py("image", "lines", "--cann", line.cann, "--json", check=None)
        # 6: built, and verify failed. That is the finding of one test, not of all.
        if done.returncode not in {0, 6}:
            pytest.fail(f"CANN {line.cann}: exit {done.returncode}\n{done.stderr}", pytrace=False)
        image = Image(json.loads(done.stdout))
        references.extend(image.table["references"])
        containers.append(started(checkout, [image.reference, "sleep", "infinity"]))
        return Standing(line, image, containers[-1], done.returncode)

    yield stand
    for container in containers:
        checkout.docker("rm", "--force", container)
    if references:
        checkout.docker("image", "rm", *references)


@pytest.fixture(scope="module", params=LINES, ids=lambda line: line.cann)
def standing(request: pytest.FixtureRequest, build: Callable[[Line], Standing]) -> Standing:
    return build(request.param)


@pytest.fixture
def inside(cannery: Cannery, standing: Standing) -> Callable[..., str]:
    """Run a command in the line's container, as `docker exec` does; gives its output."""

    def run(*command: str) -> str:
        return cannery.docker("exec", standing.container, *command).stdout

    return run


def manifest(cannery: Cannery, standing: Standing) -> dict[str, Any]:
    text = cannery.docker("exec", standing.container, "cat", "/opt/cannery/manifest.json").stdout
    return dict(json.loads(text))


def test_builds_and_verifies(standing: Standing) -> None:
    report = standing.image.table["report"]
    failed = [f"{c['id']}: {c['message']}" for c in report["checks"] if c["status"] == "failed"]
    assert (failed, report["result"], standing.code) == ([], "passed", 0), standing.line.cann
    skipped = {check["id"] for check in report["checks"] if check["status"] == "skipped"}
    assert skipped
    assert all(name.startswith("npu.") for name in skipped), skipped


def test_says_which_line_it_is(cannery: Cannery, standing: Standing) -> None:
    cann = standing.line.cann
    assert re.fullmatch(
        rf"lines:{re.escape(cann)}-910b-ubuntu22\.04-py3\.11-[0-9a-f]{{12}}-standin", standing.image.reference
    )
    told = manifest(cannery, standing)
    assert told["target"]["cann"] == cann
    assert told["base"]["kind"] == "standin"
    assert told["forced"] == []


def test_same_environment_however_a_process_starts(
    cannery: Cannery, standing: Standing, inside: Callable[..., str]
) -> None:
    reference = standing.image.reference
    sourced = " && ".join(f"source {script}" for script in standing.line.set_env)
    views = {
        "run": cannery.docker("run", "--rm", reference, "env").stdout,
        "entrypoint": cannery.docker("run", "--rm", "--entrypoint", "env", reference).stdout,
        "exec": inside("env"),
        "sh -c": inside("sh", "-c", "env"),
        "bash -lc": inside("bash", "-lc", "env"),
        "bash -lc, cleared": inside("env", "-i", "HOME=/root", "bash", "-lc", "env"),
        # What guides tell to do, and the entrypoint of CANN's images does.
        "sourced by hand": inside("bash", "-c", f"{sourced} && env"),
    }
    wanted = environment(views["run"])
    first, *others = wanted["PATH"].split(":")
    assert first == "/opt/venv/bin"
    assert f"{ASCEND}/nnal/atb/latest/atb/cxx_abi_{ABI}/bin" in others[:2]  # from 8.5 on behind AscendNPU-IR's
    for how, text in views.items():
        assert environment(text) == wanted, f"CANN {standing.line.cann}, {how}"


def test_no_empty_segment_in_any_path(inside: Callable[..., str]) -> None:
    env = environment(inside("env"))
    lists = {name: value for name, value in env.items() if name.endswith("PATH")}
    assert {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"} <= lists.keys()
    assert {name: value for name, value in lists.items() if not all(value.split(":"))} == {}


def test_paths_are_those_of_this_line_alone(standing: Standing, inside: Callable[..., str]) -> None:
    line = standing.line
    env = environment(inside("env"))
    assert env["ASCEND_TOOLKIT_HOME"] == env["ASCEND_HOME_PATH"] == line.home
    assert env["ASCEND_OPP_PATH"] == f"{line.home}/opp"
    assert env["TOOLCHAIN_HOME"] == f"{line.home}/toolkit"
    text = json.dumps(env)
    assert set(re.findall(r"ascend-toolkit/([^/:\"]+)", text)) <= {"latest"}
    assert set(re.findall(r"/cann-([^/:\"]+)", text)) == ({line.cann} if line.home != LATEST else set())
    assert f"/usr/local/python{line.python}/bin" in env["PATH"].split(":")
    assert set(re.findall(r"/usr/local/python([\d.]+)", text)) == {line.python}


def test_folders_and_scripts_stand_where_the_line_has_them(standing: Standing, inside: Callable[..., str]) -> None:
    line = standing.line
    env = environment(inside("env"))
    for path in (*(env[name] for name in HOMES), env["ATB_HOME_PATH"], f"{env['ATB_HOME_PATH']}/lib"):
        inside("test", "-d", path)
    for script in line.set_env:
        inside("test", "-x", script)
    assert inside("readlink", "-f", LATEST).strip() == line.real
    assert inside("readlink", "-f", "/opt/venv/bin/python").strip() == "/usr/bin/python3.11"
    assert inside("readlink", "/opt/venv/bin/python3").strip() == f"/usr/local/python{line.python}/bin/python3"


def test_version_files_name_the_line(standing: Standing, inside: Callable[..., str]) -> None:
    machine = inside("uname", "-m").strip()
    toolkit = inside("cat", f"{standing.line.home}/{machine}-linux/ascend_toolkit_install.info")
    atb = inside("cat", f"{ASCEND}/nnal/atb/latest/version.info")
    assert toolkit == f"version={standing.line.version}\n"
    assert atb == f"Ascend-cann-atb : {standing.line.version}\n"


def test_atb_has_the_abi_of_torch_npu(standing: Standing, inside: Callable[..., str]) -> None:
    seen = json.loads(inside(PYTHON, "-c", PROBE).splitlines()[-1])
    assert (seen["abi"], seen["npus"]) == (ABI, 0)
    env = environment(inside("env"))
    folder = f"{ASCEND}/nnal/atb/latest/atb/cxx_abi_{ABI}"
    assert env["ATB_HOME_PATH"] == folder
    # One left behind on a search path would win or lose by its place.
    found = {name: re.findall(r"cxx_abi_\d", value) for name, value in env.items()}
    assert {abi for abis in found.values() for abi in abis} == {f"cxx_abi_{ABI}"}
    loaded = [path for path in seen["maps"] if path.endswith("/libatb.so")]
    assert loaded == [f"{ASCEND}/nnal/atb/{standing.line.version}/atb/cxx_abi_{ABI}/lib/libatb.so"]


def test_the_base_names_the_atb_that_the_line_s_images_name(cannery: Cannery, standing: Standing) -> None:
    reference = manifest(cannery, standing)["base"]["reference"]
    assert reference.startswith(f"cannery-standin:{standing.line.cann}-")
    views = {
        "run": cannery.docker("run", "--rm", reference, "env").stdout,
        "entrypoint": cannery.docker("run", "--rm", "--entrypoint", "env", reference).stdout,
    }
    for how, text in views.items():
        assert environment(text)["ATB_HOME_PATH"].endswith(f"/cxx_abi_{standing.line.base_abi}"), how
    config = json.loads(cannery.docker("image", "inspect", reference).stdout)[0]["Config"]
    sourced = re.findall(r"source (\S+)", " ".join(config["Entrypoint"]))
    assert tuple(sourced) == standing.line.set_env


def test_what_cann_imports_is_in_the_virtual_environment(standing: Standing, inside: Callable[..., str]) -> None:
    code = (
        "import importlib, json\n"
        f"found = {{name: importlib.import_module(name).__file__ for name in {CANN_IMPORTS!r}}}\n"
        "print(json.dumps(found))"
    )
    found = json.loads(inside(PYTHON, "-c", code).splitlines()[-1])
    assert sorted(found) == sorted(CANN_IMPORTS), standing.line.cann
    strange = {name: path for name, path in found.items() if not path.startswith("/opt/venv/lib/python3.11/")}
    assert strange == {}


def test_layers_of_wheels_are_those_of_the_first_line(
    cannery: Cannery, standing: Standing, build: Callable[[Line], Standing]
) -> None:
    mine, first = (layers_of(cannery, one.image.reference) for one in (standing, build(LINES[0])))
    # Of the line itself: the shape of CANN, system packages, the venv's links to the interpreter, the manifest. And
    # BuildKit may write the tar of the first new layer on top of a cached one in another order.
    assert len(mine) == len(first) == 14
    assert len({*mine} - {*first}) <= 5, standing.line.cann
