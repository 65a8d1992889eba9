"""One broken fact each, for a started container of the quickstart image: the check that must fail, and how to break it.

A test starts a container with `run_options`, runs `command` in it as root, then the verify script with `options`, and
expects that exactly `check` has the status `status` and nothing else failed but what `also` names (glob patterns).
The engine, the image and its tag are the test's; here is only the table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase

SITE = "/opt/venv/lib/python3.11/site-packages"
PYTHON = "/opt/venv/bin/python"
MANIFEST = "/opt/cannery/manifest.json"
TOOLKIT = "/usr/local/Ascend/ascend-toolkit/latest"
ATB = "/usr/local/Ascend/nnal/atb/latest"
DRIVER = "/usr/local/Ascend/driver"
# /dev/null in the place of the nodes opens and answers nothing, on any host and without mknod.
NODES = ("davinci0", "davinci_manager", "devmm_svm", "hisi_hdc")
NULL_DEVICES = tuple(f"/dev/null:/dev/{name}" for name in NODES)


@dataclass(frozen=True)
class Breakage:
    """How to break one fact. `command` is for `sh -c`; `devices` are host:container pairs for `--device`.

    `arguments` are more options of the verify script.
    """

    check: str
    name: str
    command: str = "true"
    env: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    workdir: str = ""
    shm_size: str = "16g"
    also: tuple[str, ...] = ()
    status: str = "failed"
    arguments: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """The level that shows it; running that one alone saves the imports of torch."""
        return self.check.partition(".")[0]

    @property
    def run_options(self) -> tuple[str, ...]:
        """Options of `docker run`."""
        options = ["--shm-size", self.shm_size]
        options += [word for item in self.env for word in ("--env", item)]
        options += [word for item in self.devices for word in ("--device", item)]
        return (*options, *(("--workdir", self.workdir) if self.workdir else ()))

    @property
    def options(self) -> tuple[str, ...]:
        """Options of the verify script."""
        return ("--level", self.level, "--json", *self.arguments)

    def explains(self, check: str) -> bool:
        """Whether a check may fail because of this."""
        return check == self.check or any(fnmatchcase(check, pattern) for pattern in self.also)


def python(*lines: str) -> str:
    """A shell command that runs lines of Python (free of single quotes), with the manifest as `m`, written back."""
    text = "\n".join(
        [
            "import json, pathlib, sys",
            f'p = pathlib.Path("{MANIFEST}"); m = json.loads(p.read_text()); site = pathlib.Path("{SITE}")',
            *lines,
            "p.write_text(json.dumps(m))",
        ]
    )
    assert "'" not in text, text
    return f"{PYTHON} -c '{text}'"


def stray(*names: str) -> str:
    """A shell command that makes distributions look installed."""
    return " && ".join(
        f"mkdir {SITE}/{name}-9.0.dist-info && "
        rf"printf 'Metadata-Version: 2.1\nName: {name}\nVersion: 9.0\n' > {SITE}/{name}-9.0.dist-info/METADATA"
        for name in names
    )


def at_start(*lines: str) -> str:
    """A shell command that adds lines of Python that every interpreter of the venv runs first; no RECORD has them."""
    # Not sitecustomize: Debian's Python has its own, which comes first.
    text = "\\n".join(lines)
    return f"printf '{text}\\n' > {SITE}/broken_at_start.py && echo 'import broken_at_start' > {SITE}/broken.pth"


def not_importable(module: str) -> str:
    """A shell command after which `import module` fails, whatever its files are."""
    return at_start("import sys", f'sys.modules["{module}"] = None')


def tree(name: str) -> str:
    """A line of Python for `python` that adds a source, which is a tree, to the manifest."""
    row = {
        "name": name,
        "component": name,
        "version": "9.0",
        "install": "tree",
        "path": f"/opt/src/{name}",
        "repository": None,
        "commit": None,
        "release": None,
        "dirty": False,
        "without": "",
        "chips": [],
    }
    return f'm["sources"].append(json.loads("""{json.dumps(row)}"""))'


# A distribution that vLLM would load as its platform, without its code; and a vLLM that asks for one.
HOLLOW_PLUGIN = python(
    'info = site / "plug-9.0.dist-info"; info.mkdir(); (site / "plug").mkdir()',
    '(info / "METADATA").write_text("Metadata-Version: 2.1\\nName: plug\\nVersion: 9.0\\n")',
    '(info / "entry_points.txt").write_text("[vllm.platform_plugins]\\nplug = plug:register\\n")',
    'for n in ("vllm", "plug"): m["wheels"].append({**m["wheels"][0], "name": n, "version": "9.0"})',
)
REAL = python('m["base"]["kind"] = "real"')  # the level npu is skipped on a stand-in
FAKE_DRIVER = (
    f"mkdir -p {DRIVER}/lib64/driver && : > {DRIVER}/lib64/driver/libascend_hal.so && "
    f"echo Version=25.2.0 > {DRIVER}/version.info"
)
FAKE_SMI = r"printf '#!/bin/sh\necho npu-smi 25.2.0\n' > /usr/local/bin/npu-smi && chmod 755 /usr/local/bin/npu-smi"
# A patch of one module.
PATCH = (
    "import hashlib",
    'f = site / "verl/protocol.py"; h = hashlib.sha256(f.read_bytes()).hexdigest()',
    'row = {"path": str(f), "before": None, "after": h, "module": "verl.protocol"}',
    'm["patches"].append({"name": "p", "digest": h, "component": "verl", "files": [row]})',
)
# torch.npu is torch_npu.npu.
ONE_NPU = f"echo 'device_count = lambda: 1' >> {SITE}/torch_npu/npu/__init__.py"
ON_NPU = f"{REAL} && {FAKE_DRIVER}"

STATIC = (
    Breakage("static.manifest", "another schema", python('m["schema"] = 2')),
    Breakage("static.manifest", "cut off", f"truncate -s 200 {MANIFEST}"),
    Breakage("static.manifest", "another than the one asked for", arguments=("--manifest-sha256", "0" * 64)),
    Breakage("static.manifest", "unknown check may be skipped", python('m["may_skip"].append("npu.nothing")')),
    Breakage(
        "static.python", "the base's packages come in", "echo include-system-site-packages=true >> /opt/venv/pyvenv.cfg"
    ),
    Breakage("static.python", "another minor version", python('m["target"]["python"] = "3.12"')),
    Breakage("static.base", "NNAL of another release", f"echo 'Ascend-cann-atb : 8.2.RC1' > {ATB}/version.info"),
    Breakage("static.base", "set_env.sh gone", "rm /usr/local/Ascend/ascend-toolkit/set_env.sh", also=("static.env",)),
    Breakage("static.wheels", "one too many", stray("stray")),
    Breakage("static.wheels", "one too few", f"{PYTHON} -m pip uninstall --yes --quiet verl"),
    Breakage(
        "static.wheels",
        "another version",
        python('w = next(w for w in m["wheels"] if w["name"] == "numpy"); w["version"] = "1.0"'),
    ),
    Breakage("static.sources", "a tree gone", python(tree("gone"))),
    Breakage("static.sources", "an empty tree", f"mkdir -p /opt/src/hollow/inside && {python(tree('hollow'))}"),
    Breakage("static.files", "a file changed", f"echo '# changed' >> {SITE}/numpy/version.py"),
    Breakage("static.files", "a file changed, same size", f"sed -i 's/version/versiom/' {SITE}/numpy/version.py"),
    Breakage("static.files", "a file lost", f"rm {SITE}/ray/_version.py"),
    Breakage("static.files", "what runs at each start", at_start("import os")),
    Breakage("static.files", "sitecustomize", f"touch {SITE}/sitecustomize.py"),
    Breakage("static.files", "a module that nothing owns", f"touch {SITE}/verl/added.py"),
    Breakage("static.files", "a package that nothing owns", f"cp -r {SITE}/yaml {SITE}/yaml_copy"),
    Breakage(
        "static.files",
        "a package that lost its dist-info",
        f"rm -r {SITE}/verl-*.dist-info",
        also=("static.wheels",),  # how it is told that verl is not installed
    ),
    Breakage("static.files", "a .pyc without source", f"touch {SITE}/ray/__pycache__/gone.cpython-311.pyc"),
    Breakage("static.files", "a console script that does not run", "chmod a-x /opt/venv/bin/ray"),
    Breakage(
        "static.patches",
        "not applied",
        python(
            "import hashlib",
            'f = site / "verl/protocol.py"; h = hashlib.sha256(f.read_bytes()).hexdigest()',
            'row = {"path": str(f), "before": h, "after": "0" * 64}',
            'm["patches"].append({"name": "p", "digest": "0" * 64, "component": "verl", "files": [row]})',
        ),
    ),
    Breakage(
        "static.set-env",
        "a script that gives more",
        "echo 'export NEW=1' >> /usr/local/Ascend/ascend-toolkit/set_env.sh",
        status="warning",
    ),
    Breakage("static.env", "a login shell without it", "rm /etc/profile.d/cannery.sh"),
    Breakage("static.env", "another value", env=("ASCEND_OPP_PATH=/nowhere",)),
    Breakage("static.env", "ATB of the other C++ ABI", env=(f"ATB_HOME_PATH={ATB}/atb/cxx_abi_0",)),
    Breakage("static.preload", "library gone", "rm /usr/local/lib/libjemalloc.so.2", also=("static.files",)),
    Breakage(
        "static.preload",
        "another library under its name",
        "cp --remove-destination /lib/*-linux-gnu/libz.so.1 /usr/local/lib/libjemalloc.so.2",
    ),
    Breakage("static.libraries", "a CANN library gone", f"rm {TOOLKIT}/lib64/libhccl.so"),
    Breakage(
        "static.libraries",
        "an extension that needs what is not there",
        f"find {SITE}/numpy -name '_multiarray_umath*.so' -exec cp {{}} /opt/venv/lib/stray.so ';' && "
        "sed -i 's/libm\\.so\\.6/libM.so.6/' /opt/venv/lib/stray.so",
    ),
    Breakage("static.programs", "a compiler that is not there", python('m["checks"]["programs"] = ["ninja"]')),
    Breakage("static.wheels", "both triton", stray("triton", "triton_ascend")),
    Breakage("static.wheels", "a CUDA package", stray("nvidia_nccl_cu12")),
    Breakage("static.shadow", "a folder where one works", "mkdir -p verl", workdir="/workspace"),
    Breakage("static.shadow", "a module where one works", "touch transformers.py", workdir="/workspace"),
    Breakage(
        "static.shadow",
        "a copy on PYTHONPATH",
        f"mkdir -p {TOOLKIT}/python/site-packages/ray && touch {TOOLKIT}/python/site-packages/ray/__init__.py",
    ),
    Breakage(
        "static.shadow",
        "two of a package without __init__.py",
        "for tree in one two; do d=/opt/src/$tree/megatron/core; mkdir -p $d && touch $d/__init__.py; done && "
        f"{python(tree('one'), tree('two'))}",
        env=("PYTHONPATH=/opt/src/one:/opt/src/two",),
        also=("static.env",),  # the base's own entries are gone
    ),
    Breakage(
        "static.device-type",
        "built for A3",
        "mkdir -p /opt/src/vllm-ascend/vllm_ascend && "
        "echo '__device_type__ = \"A3\"' > /opt/src/vllm-ascend/vllm_ascend/_build_info.py && "
        f"{python(tree('vllm-ascend'))}",
    ),
    Breakage(
        "static.pip-check",
        "a requirement that nothing meets",
        python(
            '(info,) = site.glob("verl-*.dist-info")',
            'meta = info / "METADATA"; record = info / "RECORD"',
            'meta.write_text("Requires-Dist: no-such-distribution\\n" + meta.read_text())',
            # The row keeps its path and loses hash and size, or static.files would see the change first.
            'rows = [r.split(",")[0] + ",," if "/METADATA," in r else r for r in record.read_text().splitlines()]',
            'record.write_text("\\n".join(rows) + "\\n")',
        ),
    ),
    Breakage("static.pip-check", "pip is gone", not_importable("pip"), arguments=("--only", "static.pip-check")),
    Breakage(
        "static.pip-check",
        "pip aborts",
        at_start(
            "import builtins, os, sys",
            "real = builtins.__import__",
            "def hooked(name, *more, **named):",
            '    if name == "pip": os.abort()',
            "    return real(name, *more, **named)",
            "class Finder:",
            "    @staticmethod",
            "    def find_spec(name, path=None, target=None):",
            '        if name == "pip": os.abort()',
            "sys.meta_path.insert(0, Finder)",
        ),
        arguments=("--only", "static.pip-check"),
    ),
    Breakage("static.readable", "a closed file", f"chmod 600 {SITE}/numpy/version.py"),
    Breakage("static.readable", "a closed folder", f"chmod 750 {SITE}/verl"),
    Breakage(
        "static.user",
        "another main group",
        python('m["user"] = {"uid": 1, "name": "daemon", "gid": 7}'),
    ),
    Breakage(
        "static.writable",
        "a file in the place of a folder",
        python('m["checks"]["writable"] = ["MPLCONFIGDIR"]'),
        env=("MPLCONFIGDIR=/etc/passwd",),
    ),
    Breakage("static.leftovers", "pip settings", "mkdir -p /root/.pip && touch /root/.pip/pip.conf"),
    Breakage(
        "static.leftovers", "a baked proxy", "echo 'export https_proxy=http://proxy.example' > /etc/profile.d/p.sh"
    ),
    Breakage("static.shm", "docker's default", shm_size="64m", status="warning"),
)

EVERY = ("import.*",)  # nothing imports without torch
QUEUE = ("import.transfer_queue",)  # it stands on ray and tensordict
IMPORT = (
    Breakage("import.numpy", "gone", not_importable("numpy"), also=EVERY),
    Breakage("import.torch", "gone", not_importable("torch"), also=EVERY),
    Breakage("import.torch_npu", "gone", not_importable("torch_npu"), also=EVERY),
    Breakage("import.torch_npu", "its CANN library gone", f"rm {TOOLKIT}/lib64/libascendcl.so", also=EVERY),
    Breakage("import.ray", "gone", not_importable("ray"), also=(*QUEUE, "import.verl", "import.verl.*")),
    Breakage("import.transformers", "gone", not_importable("transformers"), also=("import.verl", "import.verl.*")),
    Breakage(
        "import.tokenizers",
        "gone",
        not_importable("tokenizers"),
        also=("import.transformers", "import.verl", "import.verl.*"),
    ),
    Breakage("import.tensordict", "gone", not_importable("tensordict"), also=(*QUEUE, "import.verl", "import.verl.*")),
    Breakage("import.transfer_queue", "gone", not_importable("transfer_queue")),
    Breakage("import.cachetools", "gone", not_importable("cachetools")),
    Breakage("import.fastapi", "gone", not_importable("fastapi")),
    Breakage("import.uvicorn", "gone", not_importable("uvicorn")),
    Breakage("import.verl", "gone", not_importable("verl"), also=("import.verl.*",)),
    Breakage("import.verl.protocol", "gone", not_importable("verl.protocol"), also=("import.verl",)),
    Breakage("import.plugins", "a folder without code", HOLLOW_PLUGIN, arguments=("--only", "import.plugins")),
    Breakage("import.verl.gone", "a module that does not import", python(*PATCH, 'row["module"] = "verl.gone"')),
    Breakage("import.torch-npu-pair", "the other C++ ABI", python('m["base"]["atb_abi"] = 0')),
    Breakage(
        "import.torch-npu-pair",
        "another version than the manifest's",
        python('w = next(w for w in m["wheels"] if w["name"] == "torch"); w["version"] = "2.12.0"'),
    ),
)

NPU = (
    Breakage("npu.nodes", "one lacks", f"{ON_NPU} && {FAKE_SMI}", devices=NULL_DEVICES[:-1]),
    Breakage("npu.driver", "not mounted", REAL, devices=NULL_DEVICES),
    Breakage(
        "npu.driver",
        "a stub of its library comes first",
        f"{ON_NPU} && : > {TOOLKIT}/lib64/libascend_hal.so",
        devices=NULL_DEVICES,
    ),
    Breakage(
        "npu.smi", "the stand-in's", f"{ON_NPU} && {ONE_NPU}", devices=NULL_DEVICES, also=("npu.tensor",)
    ),  # the one made-up NPU takes no tensor
    Breakage(
        "npu.visible",
        "a card of the host",
        f"{ON_NPU} && {FAKE_SMI}",
        env=("ASCEND_RT_VISIBLE_DEVICES=4",),
        devices=NULL_DEVICES,
    ),
    Breakage(
        "npu.network",
        "no address of a card",
        f"""{ON_NPU} && {FAKE_SMI} && : > /etc/hccn.conf && {python('m["several_hosts"] = True')}""",
        devices=NULL_DEVICES,
        also=("npu.count", "npu.tensor"),
    ),
    Breakage("npu.count", "none answers", f"{ON_NPU} && {FAKE_SMI}", devices=NULL_DEVICES),
    Breakage("npu.tensor", "no NPU behind it", f"{ON_NPU} && {FAKE_SMI} && {ONE_NPU}", devices=NULL_DEVICES),
    Breakage(
        "npu.nodes",
        "a skip that the manifest does not allow",
        python('m["may_skip"].remove("npu.nodes")'),
    ),
)

TRAIN = (
    Breakage("train.model", "no tokenizers", f"rm -r {SITE}/tokenizers", arguments=("--only", "train.model")),
    Breakage(
        "train.data",
        "verl's dataset is gone",
        f"rm {SITE}/verl/utils/dataset/rl_dataset.py",
        arguments=("--only", "train.data"),
    ),
    Breakage(
        "train.config",
        "a part of verl's configuration is gone",
        f"rm {SITE}/verl/trainer/config/data/legacy_data.yaml",
        arguments=("--only", "train.config"),
    ),
    Breakage(
        "train.step",
        "a skip that the manifest does not allow",
        python('m["may_skip"].remove("train.step")'),
        arguments=("--only", "train.step"),
    ),
)

BREAKAGES: tuple[Breakage, ...] = (*STATIC, *IMPORT, *NPU, *TRAIN)
