"""The scratch folder of the level train, and the environment of children that may write: there, and nowhere else."""

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from dataclasses import replace

from verifying.image import Image

MARK = "CANNERY_TRAIN"  # by it the processes are known that a trainer left behind: ray's are in sessions of their own
KEY = "scratch"
LOOPBACK = "lo"
# What ray is to count, whatever the container has: MindSpeed-RL asks for 8 CPUs a card and 10 beside, verl for 3 a card
# and some more, and where fewer are counted they wait without end. Ray starts as many workers ahead, not one a core.
RESOURCES = {"RAY_OVERRIDE_RESOURCES": '{"CPU": 32}'}
# A worker and its engine are two processes on one NPU: both can listen only where HCCL has ports to choose from.
PORTS = {"HCCL_HOST_SOCKET_PORT_RANGE": "60000-60050", "HCCL_NPU_SOCKET_PORT_RANGE": "61000-61050"}
LONGEST = 30  # characters: ray puts sockets 65 to 75 deeper, and the path of a socket ends at 107


def scratch(image: Image) -> str:
    """The folder, made at first use: the one asked for, else a new one with a short name."""

    def make() -> str:
        if not image.options.scratch:
            return tempfile.mkdtemp(prefix="train-")
        os.makedirs(image.options.scratch, exist_ok=True)
        return os.path.abspath(image.options.scratch)

    return image.remember(KEY, make)


def outside(image: Image) -> Image:
    """The image with an environment in which caches, logs and ray's files go to the scratch folder; no network."""
    folder = scratch(image)
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    env = {
        **PORTS,
        **RESOURCES,
        **image.env,
        MARK: folder,
        "HOME": home,
        "HF_HOME": f"{home}/huggingface",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "HYDRA_FULL_ERROR": "1",
        **({"RAY_TMPDIR": folder} if len(folder) <= LONGEST else {}),
        **alone(image),
    }
    return replace(image, env=env)


def alone(image: Image) -> dict[str, str]:
    """What vLLM and gloo have to be told in a container without network, where no address is to be found."""
    names = [path.rpartition("/")[2] for path in image.find("/sys/class/net/*")]
    return {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": LOOPBACK} if names == [LOOPBACK] else {}


def tidy(image: Image) -> None:
    """Ends what a trainer left running, and removes the folder unless it was asked for."""
    folder = image.memory.get(KEY)
    if not folder:
        return
    for number in left_running(folder):
        with suppress(OSError):
            os.kill(number, signal.SIGKILL)
    if not image.options.scratch:
        shutil.rmtree(folder, ignore_errors=True)


def left_running(folder: str) -> list[int]:
    """The processes that were started with this folder in their environment."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(int(name))
    return [number for number in found if number != os.getpid()]
