"""Cannery against the usual `RUN pip install` Dockerfile: same base, same wheels, same engine, side by side.

    .venv/bin/python benchmarks/pip_install.py [--pairs 3]

For `quickstart`: a build without any cache, a build after one changed pin (torch-npu's wheel takes another file's
place; nothing else changes), a build when nothing changed. Needs an image of quickstart that was built before (wheels
and base are then there): what is compared is installing, not downloading. Prints seconds of each pair and the ratios'
median; machines are noisy, quote ratios. At the end it removes its images, and what it added to the build cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cannery.build.io.secrets import host_secrets  # noqa: E402
from cannery.context import read_context  # noqa: E402
from cannery.engine.io.find import docker_client, find_engine  # noqa: E402
from cannery.engine.io.inspect import build_cache  # noqa: E402

if TYPE_CHECKING:
    import docker

    from cannery.engine.io.find import Engine

Pair = tuple[float, float]
# What install guides and most public images do, with the wheels at hand so that the network plays no part.
DOCKERFILE = """\
FROM {base}
RUN --mount=type=bind,source=wheels,target=/wheels {python} -m venv --without-pip /opt/venv && \\
    PYTHONPATH=$(ls /wheels/pip-*.whl) /opt/venv/bin/python -m pip install --no-index --find-links /wheels \\
    --no-cache-dir --no-deps --no-build-isolation -r /wheels/requirements.txt
"""


def main() -> None:
    """Run the pairs and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    pairs = parser.parse_args().pairs
    context = read_context(ROOT)
    engine = find_engine(context.env)
    suite = context.catalog().standin.suite
    plan = json.loads(build_py("plan", "quickstart", "--json"))
    client = docker_client(engine)
    before = {record["ID"] for record in build_cache(client)}
    try:
        with host_secrets(context.cache, context.env, context.pip, suite, {}) as secrets:
            rows = measured(engine, {**context.env, **secrets.env}, plan, pairs)
    finally:
        freed = cleaned(client, before)
    print(f"{os.cpu_count()} cores, engine {engine.server_version}, {len(plan['layers'])} layers")
    for what, times in rows.items():
        ratio = statistics.median(b / a for a, b in times)
        shown = "  ".join(f"{a:.1f}/{b:.1f}" for a, b in times)
        print(f"{what:<16} seconds Cannery/usual: {shown}  median ratio usual/Cannery: {ratio:.1f}")
    print(f"removed what this made: {freed / 1e9:.1f} GB of build cache, and its images")


def cleaned(client: docker.DockerClient, before: set[str]) -> int:
    """Remove the images, and the records of the build cache that are not in `before`; return the bytes freed."""
    for image in client.images.list(filters={"reference": "cannery-benchmark"}):
        client.images.remove(image.id, force=True)
    added = {record["ID"] for record in build_cache(client)} - before
    return sum(client.api.prune_builds(filters={"id": one}, all=True)["SpaceReclaimed"] for one in added)


def measured(engine: Engine, env: dict[str, str], plan: dict[str, Any], pairs: int) -> dict[str, list[Pair]]:
    """Build the pairs; return the seconds of both by what was changed."""
    with tempfile.TemporaryDirectory(dir=ROOT / "out", prefix="benchmark-") as name:
        ours, usual = Path(name, "cannery"), Path(name, "usual")
        build_py("render", "quickstart", "--output", str(ours))
        make_usual(ours, usual, plan["base"])
        bake = engine.buildx_command("bake", "--set", "image.tags=cannery-benchmark:1")
        build = engine.buildx_command("build", "--tag", "cannery-benchmark:2", ".")
        rows: dict[str, list[Pair]] = {"no cache": [], "one changed pin": [], "nothing changed": []}
        for number in range(pairs):
            cold = [timed((*command, "--no-cache"), folder, env) for command, folder in ((bake, ours), (build, usual))]
            rows["no cache"].append((cold[0], cold[1]))
            change_one(ours, usual, number)
            rows["one changed pin"].append((timed(bake, ours, env), timed(build, usual, env)))
            rows["nothing changed"].append((timed(bake, ours, env), timed(build, usual, env)))
        return rows


def make_usual(ours: Path, usual: Path, base: str) -> None:
    """Write the usual Dockerfile's folder, with hard links to the same wheels (built from source ones left out)."""
    (usual / "wheels").mkdir(parents=True)
    lines = []
    for group in sorted((ours / "groups").glob("*.txt")):
        if group.stem == "built":
            continue
        lines += [line.split(" ")[0] for line in group.read_text().splitlines()]
        for wheel in (ours / "wheels" / group.stem).iterdir():
            os.link(wheel, usual / "wheels" / wheel.name)
    (usual / "wheels/requirements.txt").write_text("\n".join(lines) + "\n")
    python = next(word for word in (ours / "Dockerfile").read_text().split() if word.endswith("/bin/python3"))
    (usual / "Dockerfile").write_text(DOCKERFILE.format(base=base, python=python))


def change_one(ours: Path, usual: Path, number: int) -> None:
    """Change what one pin stands for: the wheel file of torch-npu gets another content, of the same packages."""
    (wheel,) = (ours / "wheels/torch-npu").iterdir()
    for path in (wheel, usual / "wheels" / wheel.name):
        copy = path.with_name("changed")
        shutil.copyfile(path, copy)
        subprocess.run((sys.executable, "-c", APPEND, str(copy), str(number)), check=True)
        copy.replace(path)
    digest = subprocess.run(("sha256sum", str(wheel)), capture_output=True, text=True, check=True).stdout.split()[0]
    group = ours / "groups/torch-npu.txt"
    group.write_text(group.read_text().split("sha256:")[0] + f"sha256:{digest}\n")


# A zip may end with a comment: other bytes, the same files.
APPEND = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1], 'a'); z.comment = sys.argv[2].encode(); z.close()"


def build_py(*arguments: str) -> str:
    """Run build.py and return what it printed."""
    command = (sys.executable, "build.py", *arguments)
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def timed(command: tuple[str, ...], folder: Path, env: dict[str, str]) -> float:
    """Run a command and return its seconds."""
    start = time.monotonic()
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    return time.monotonic() - start


if __name__ == "__main__":
    main()
