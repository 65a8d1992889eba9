"""The usual ways to install wheels into an image: in a box, as RUN would; and with a Docker engine."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
import zipfile
from typing import TYPE_CHECKING

from uv import find_uv_bin

from cannery.assemble.image import Settings, config_text, image_config
from cannery.assemble.io.folder import write_changes
from cannery.assemble.io.sink import GzipSink
from cannery.host.io.place import StorePlace
from cannery.recipe.environment import python_home
from cannery.sandbox.box import Box, Mount, box_command
from cannery.sandbox.dockerfile import read_stages, wanted_stages
from cannery.sandbox.io.stages import MADE_EMPTY, OF_BOXES
from cannery.store.io.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cannery.engine.io.find import Engine
    from cannery.plan import Plan

# The installers' names, and how their commands begin. A venv without pip uses pip's wheel.
VENV = "{python} -m venv --without-pip /opt/venv && "
INSTALLERS = {
    "pip install": VENV + "PYTHONPATH=$(ls {at}/pip-*.whl) /opt/venv/bin/python -m pip install --no-cache-dir",
    "uv pip install": VENV + "/run/uv pip install --python /opt/venv --no-cache --offline --compile-bytecode",
}
ARGUMENTS = " --no-index --find-links {at} --no-deps -r {at}/requirements.txt"
WHEELS = "/run/wheels"
DOCKERFILE = "FROM {base}\nRUN --mount=type=bind,source=.,target={at} {command}\n"


def command_of(plan: Plan, who: str) -> str:
    """Return the usual command that installs the wheels at `WHEELS`."""
    return (INSTALLERS[who] + ARGUMENTS).format(at=WHEELS, python=f"{python_home(plan.recipe.base.tag)}/bin/python3")


def installed(plan: Plan, cache: Path, who: str, wheels: Path) -> None:
    """Install wheels in a box on the base, and store the image in the cache, with the changes as one layer."""
    command = command_of(plan, who)
    store, mounts, upper = Store(cache / "images"), cache / "mounts", cache / "changes"
    mounts.mkdir()
    place = StorePlace(store, {}, plan.build_arch, cache)
    base, lowers = place.attributes(plan.base_reference), store.lowers(plan.base_reference)
    binds = (Mount(str(wheels), WHEELS, read_only=True), Mount(find_uv_bin(), "/run/uv", read_only=True))
    env = store.needed(plan.base_reference).env
    box = Box(lowers, ("/bin/sh", "-c", command), upper=upper, binds=binds, env=env)
    subprocess.run(box_command(box, mounts), check=True)
    left_out = (*OF_BOXES, *MADE_EMPTY)
    layer = store.write(lambda part: write_changes(upper, lowers, left_out, GzipSink(part)))
    config = image_config(base, [layer.diff_id], [f"RUN {command}"], Settings({}, {}, {}), plan.epoch)
    store.put(config_text(config), "usual:1")


NAME = "cannery-benchmark"


class Builds:
    """`docker buildx bake` of a rendered folder, and `docker build` of the usual one."""

    def __init__(self, engine: Engine, env: Mapping[str, str], rendered: Path, usual: Path) -> None:
        self._engine, self._env, self._rendered, self._usual = engine, env, rendered, usual
        self._token = str(time.time_ns())
        stages = read_stages((rendered / "Dockerfile").read_text())
        before = {stage.name for stage in wanted_stages(stages, "foundation", ())}
        bake = json.loads((rendered / "docker-bake.json").read_text())
        bake["target"]["image"]["no-cache-filter"] = [name for name in stages if name not in before]
        (rendered / "empty.json").write_text(json.dumps(bake))

    def bake(self, file: str = "docker-bake.json", target: str = "image") -> float:
        """Return the seconds of a bake; `empty.json` rebuilds all above the foundation."""
        return self._timed(self._rendered, "bake", "-f", file, "--set", f"{target}.tags={NAME}:1", target)

    def build(self, *options: str) -> float:
        """Return the seconds of a build of the usual Dockerfile."""
        return self._timed(self._usual, "build", *options, "--tag", f"{NAME}:2", ".")

    def _timed(self, folder: Path, *words: str) -> float:
        begun = time.monotonic()
        subprocess.run(self._engine.buildx_command(*words), cwd=folder, env=self._env, check=True, capture_output=True)
        return time.monotonic() - begun

    def change(self, package: str) -> None:
        """Change a wheel as a pin does, to a file that no earlier build had."""
        (wheel,) = self._rendered.glob(f"wheels/*/{package}-*.whl")
        before = hashlib.sha256(wheel.read_bytes()).hexdigest()
        copy = wheel.with_name("changed")
        shutil.copyfile(wheel, copy)
        with zipfile.ZipFile(copy, "a") as archive:  # other bytes, the same files
            archive.comment = self._token.encode()
        copy.replace(wheel)
        group = self._rendered / "groups" / f"{wheel.parent.name}.txt"
        group.write_text(group.read_text().replace(before, hashlib.sha256(wheel.read_bytes()).hexdigest()))
        usual = self._usual / wheel.name
        usual.unlink()
        shutil.copyfile(wheel, usual)

    def remove(self) -> None:
        """Remove the images. Their parts stay in the engine's build cache, where no later run finds them."""
        command = self._engine.command("image", "rm", "--force", f"{NAME}:1", f"{NAME}:2")
        subprocess.run(command, env=self._env, check=False, capture_output=True)
