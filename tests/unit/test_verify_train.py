"""The level train on a made-up tree: each stage and how it fails, the step's log, what is skipped, what is left."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from data.verify_tree import REPOSITORY, Tree

import verify
from verifying import access, npu, train
from verifying.checks import USUAL, check_ids, run_checks
from verifying.train import Step, judged_step, metrics

if TYPE_CHECKING:
    from verifying.outcome import Outcome

REPORT_SCHEMA = json.loads((REPOSITORY / "docs/verify-report.schema.json").read_text())
IDS = ("train.model", "train.data", "train.config", "train.step")
VERL_LINE = "(TaskRunner pid=7) step:1 - actor/pg_loss:-0.25 - actor/grad_norm:np.float64(1.5) - training/global_step:1"
# In the place of the modules of training/: the answers are in the environment, and what it was told is written down.
STAGE = """
import json, os
def do(stage, folder, facts):
    open(folder + "/told.json", "w").write(json.dumps(facts))
    open(folder + "/ran", "a").write(stage + " ")
    answer = json.loads(os.environ["FAKE_STAGES"])[stage]
    if answer is None: os._exit(int(os.environ.get("FAKE_CODE", "0")))
    if "error" in answer:
        print("line 3")
        raise OSError(answer["error"])
    return answer
def model(folder, facts): return do("model", folder, facts)
def data(folder, facts): return do("data", folder, facts)
def config(folder, facts): return do("config", folder, facts)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(access, "PRIVATE", "/no-such-home/")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "image").mkdir()
    (tmp_path / "training").mkdir()
    for name in ("model", "verl", "mindspeed_rl"):
        (tmp_path / f"training/tiny_{name}.py").write_text(STAGE)
    monkeypatch.setattr(train, "TRAINING", str(tmp_path / "training"))
    made = Tree(tmp_path / "image")
    made.install("verl", "0.9.1", {"verl/__init__.py": ""})
    made.install("vllm", "0.13.0", {"vllm/__init__.py": ""})
    trains(made, f"print({VERL_LINE!r})")
    return made


def trains(tree: Tree, program: str, **stages: dict[str, object] | None) -> None:
    """Sets what each stage answers (None: nothing), and the program that the step runs."""
    answers: dict[str, dict[str, object] | None] = {
        "model": {"message": "a tiny model"},
        "data": {"message": "16 rows"},
        "config": {"message": "42 settings", "command": ["-c", program], "cwd": str(tree.root)},
        **stages,
    }
    tree.env["FAKE_STAGES"] = json.dumps(answers)


def npus(tree: Tree, *cards: int) -> None:
    tree.nodes(*cards)
    tree.driver()
    tree.smi("echo '| npu-smi 25.2.0  Version: 25.2.0 |'")
    tree.env["FAKE_NPUS"] = str(len(cards))


def outcomes(tree: Tree, *names: str, **options: object) -> dict[str, Outcome]:
    return {item.id: item for item in run_checks(tree.image(**options), names or IDS)}  # type: ignore[arg-type]


def statuses(tree: Tree, *names: str) -> dict[str, str]:
    return {name: item.status for name, item in outcomes(tree, *names).items()}


def run(tree: Tree, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    tree.save()
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in tree.env.items():
            patch.setenv(name, value)
        code = verify.main(["--root", str(tree.root), *arguments])
    return code, capsys.readouterr().out


def left(tree: Tree) -> list[str]:
    return [path.name for path in tree.root.parent.iterdir() if path.name.startswith("train-")]


def test_with_an_npu_every_stage_passes_and_nothing_is_left(tree: Tree) -> None:
    npus(tree, 3)
    found = outcomes(tree)
    assert {name: item.status for name, item in found.items()} == dict.fromkeys(IDS, "passed")
    assert found["train.model"].message == "a tiny model"
    step = "verl did one GRPO step on 1 NPU: actor/pg_loss -0.25, actor/grad_norm 1.5"
    assert found["train.step"].message == step
    assert left(tree) == []


def test_each_stage_runs_once_and_is_told_of_the_image(tree: Tree, tmp_path: Path) -> None:
    npus(tree, 0, 1, 2, 5)
    folder = tmp_path / "mine"
    outcomes(tree, scratch=str(folder))
    assert (folder / "ran").read_text().split() == ["model", "data", "config"]
    told = {"trainer": "verl", "home": "", "engine": "vllm", "cards": train.MOST_CARDS}
    assert json.loads((folder / "told.json").read_text()) == told
    assert VERL_LINE in (folder / "step.log").read_text()  # a folder that was asked for stays


def test_caches_of_the_children_go_to_the_scratch_folder(tree: Tree, tmp_path: Path) -> None:
    tree.env["HOME"] = "/root"
    npus(tree, 0)
    words = "import os; open('env', 'w').write('\\n'.join(os.environ[n] for n in ('HOME', 'HF_HOME', 'RAY_TMPDIR')))"
    trains(tree, words)
    short = Path("/") / "tmp" / f"t{os.getpid()}"
    try:
        outcomes(tree, scratch=str(short))
        assert (tree.root / "env").read_text().split() == [f"{short}/home", f"{short}/home/huggingface", str(short)]
    finally:
        subprocess.run(["rm", "-r", str(short)], check=True)
    image = tree.image(scratch=str(tmp_path / ("long" * 10)))  # type: ignore[arg-type]
    assert "RAY_TMPDIR" not in train.outside(image).env


def test_ray_counts_enough_and_hccl_has_ports_unless_the_image_says_otherwise(tree: Tree) -> None:
    env = train.outside(tree.image()).env
    assert json.loads(env["RAY_OVERRIDE_RESOURCES"]) == {"CPU": 32}  # the NPUs are still counted by ray itself
    assert env["HCCL_HOST_SOCKET_PORT_RANGE"] != env["HCCL_NPU_SOCKET_PORT_RANGE"]
    tree.env["HCCL_NPU_SOCKET_PORT_RANGE"] = "50000-50020"
    assert train.outside(tree.image()).env["HCCL_NPU_SOCKET_PORT_RANGE"] == "50000-50020"


def test_a_step_stays_on_this_machine_unless_the_image_says_otherwise(tree: Tree) -> None:
    assert train.outside(tree.image()).env["VLLM_HOST_IP"] == "127.0.0.1"
    tree.env["GLOO_SOCKET_IFNAME"] = "eth0"
    assert train.outside(tree.image()).env["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize("stage", ["model", "data", "config"])
def test_a_stage_that_fails_is_said_once_and_the_step_follows_from_it(tree: Tree, stage: str) -> None:
    npus(tree, 0)
    trains(tree, "", **{stage: {"error": "no such thing"}})
    found = outcomes(tree)
    assert (found[f"train.{stage}"].status, found[f"train.{stage}"].message) == ("failed", "OSError: no such thing")
    assert found[f"train.{stage}"].details[-1] == "line 3"
    assert (found["train.step"].status, found["train.step"].message) == ("skipped", f"train.{stage} failed")
    assert [name for name, item in found.items() if item.status == "failed"] == [f"train.{stage}"]
    assert left(tree) == []


@pytest.mark.parametrize("stage", ["model", "data", "config"])
def test_a_step_asked_for_alone_fails_with_the_stage_that_it_needs(tree: Tree, stage: str) -> None:
    npus(tree, 0)
    trains(tree, "", **{stage: {"error": "gone"}})
    found = outcomes(tree, "train.step")["train.step"]
    assert (found.status, found.message) == ("failed", f"train.{stage}: OSError: gone")


def test_data_asked_for_alone_makes_the_model_first(tree: Tree) -> None:
    assert statuses(tree, "train.data") == {"train.data": "passed"}
    trains(tree, "", model=None)
    assert outcomes(tree, "train.data")["train.data"].message == "train.model: ended with code 0 before it was done"


@pytest.mark.parametrize(
    ("code", "message"),
    [("0", "ended with code 0 before it was done"), ("4", "ended with code 4 before it was done")],
)
def test_a_stage_that_leaves_no_answer_fails(tree: Tree, code: str, message: str) -> None:
    trains(tree, "", config=None)
    tree.env["FAKE_CODE"] = code
    found = outcomes(tree, "train.config")["train.config"]
    assert (found.status, found.message) == ("failed", message)


def test_a_stage_without_python_fails(tree: Tree) -> None:
    (tree.root / "opt/venv/bin/python").unlink()
    assert outcomes(tree, "train.model")["train.model"].message.startswith("cannot start /opt/venv/bin/python: No such")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", "verl ended with code 3 before it was done"),
        ("raise ValueError('bad batch')", "verl ended with code 1 before it was done: ValueError: bad batch"),
        ("print('done')", "verl ended with code 0, and printed no loss of a step"),
        ("print('step:1 - a/reward:1.0')", "verl ended with code 0, and printed no loss of a step"),
        ("print('step:1 - actor/pg_loss:nan')", "verl did a step, and actor/pg_loss is nan"),
        ("print('step:1 - actor/pg_loss:0.1 - actor/grad_norm:inf')", "verl did a step, and actor/grad_norm is inf"),
        ("import os; os.kill(os.getpid(), 9)", "verl killed by SIGKILL"),
    ],
)
def test_a_step_that_fails_says_how(tree: Tree, program: str, message: str) -> None:
    npus(tree, 0)
    trains(tree, program)
    found = outcomes(tree)["train.step"]
    assert (found.status, found.message) == ("failed", message)


def test_a_step_has_a_time_limit_of_its_own(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "STEP_SECONDS", 0.2)
    npus(tree, 0)
    trains(tree, "import time; time.sleep(60)")
    found = outcomes(tree)["train.step"]
    assert (found.status, found.message) == ("failed", "verl no answer within 0.2 s")


def state(pid: str) -> str:
    """A process's state as the kernel names it; Z and X have ended, and so has one that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def test_what_a_trainer_left_running_is_ended(tree: Tree, tmp_path: Path) -> None:
    """Ray's processes are in sessions of their own, out of reach of the signal that ends a trainer."""
    npus(tree, 0)
    start = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)"
    trains(tree, f"import subprocess, sys; open({str(tmp_path / 'pid')!r}, 'w').write(str({start}.pid))")
    assert outcomes(tree)["train.step"].status == "failed"
    deadline = time.monotonic() + 20  # a killed process ends when it is next scheduled
    while state((tmp_path / "pid").read_text()) not in {"Z", "X"}:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_an_npu_only_the_step_is_skipped(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.manifest["may_skip"].append("train.step")
    code, out = run(tree, capsys, "--level", "train", "--json")
    report = json.loads(out)
    jsonschema.validate(report, REPORT_SCHEMA)
    assert code == 0
    assert [(check["id"], check["status"]) for check in report["checks"]] == [
        *((name, "passed") for name in IDS[:3]),
        ("train.step", "skipped"),
    ]
    assert report["checks"][-1]["message"] == npu.NO_NPU
    code, out = run(tree, capsys, "--level", "train")
    assert out.rstrip().endswith("the NPU was not tested (level not run); no training step ran (no NPU)")
    tree.manifest["base"]["kind"] = "standin"
    tree.nodes(0)
    assert outcomes(tree)["train.step"].message == "stand-in"


@pytest.mark.parametrize(
    ("arguments", "allowed", "code"),
    [
        ((), True, 0),
        ((), False, 1),
        (("--no-device",), False, 0),
        (("--require-npu",), True, 3),
        (("--require-npu",), False, 3),
        (("--require-npu", "--only", "train.model"), True, 0),
    ],
)
def test_exit_codes_of_a_step_without_an_npu(
    tree: Tree, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], allowed: bool, code: int
) -> None:
    tree.manifest["may_skip"] += ["train.step"] if allowed else []
    assert run(tree, capsys, "--level", "train", *arguments)[0] == code


def test_an_npu_that_fails_its_own_check_is_not_trained_on(tree: Tree) -> None:
    npus(tree, 0)
    tree.env["FAKE_BROKEN_NPU"] = "0"
    found = outcomes(tree, "npu.nodes", "npu.driver", "npu.visible", "npu.count", "npu.tensor", *IDS)
    assert (found["npu.tensor"].status, found["train.step"].message) == ("failed", "npu.tensor failed")


def test_verl_without_an_engine_takes_no_step(tree: Tree) -> None:
    npus(tree, 0)
    tree.wheels[:] = [row for row in tree.wheels if row["name"] != "vllm"]
    tree.manifest["may_skip"].append("train.step")
    found = outcomes(tree)
    assert (found["train.step"].status, found["train.step"].message) == ("skipped", train.NO_ENGINE)
    assert found["train.config"].status == "passed"


def test_the_level_runs_only_by_name(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_ids(tree.manifest)[-4:] == [*IDS]
    _, out = run(tree, capsys, "--json")
    assert {check["level"] for check in json.loads(out)["checks"]} == {*USUAL}
    assert "train.step" in run(tree, capsys, "--list")[1]
    assert run(tree, capsys, "--only", "train.config")[0] == 0


def test_an_image_without_a_trainer_has_no_such_level(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.wheels[:] = [row for row in tree.wheels if row["name"] != "verl"]
    assert [name for name in check_ids(tree.manifest) if name.startswith("train.")] == []
    tree.save()
    assert verify.main(["--root", str(tree.root), "--level", "train"]) == 2
    assert "neither verl nor MindSpeed-RL" in capsys.readouterr().err


def mindspeed_rl(tree: Tree) -> None:
    tree.wheels[:] = [row for row in tree.wheels if row["name"] != "verl"]
    tree.tree_on_path("mindspeed-rl", "2.0.0", {"mindspeed_rl/__init__.py": ""})
    item = {"module": "mindspeed_rl", "component": "mindspeed-rl", "standin": "it imports acl"}
    tree.manifest["checks"]["imports"].append(item)


def test_mindspeed_rl_runs_from_its_tree(tree: Tree, tmp_path: Path) -> None:
    mindspeed_rl(tree)
    npus(tree, 0)
    trains(tree, "print('[now] iteration: 1 / 1 | actor/pg_loss : 0.1250 | grad_norm : 2.0000')")
    found = outcomes(tree, scratch=str(tmp_path / "mine"))
    message = "MindSpeed-RL did one GRPO step on 1 NPU: actor/pg_loss 0.125, grad_norm 2"
    assert (found["train.data"].status, found["train.step"].message) == ("passed", message)
    told = json.loads((tmp_path / "mine/told.json").read_text())
    assert (told["trainer"], told["home"]) == ("mindspeed-rl", f"{tree.root}/opt/src/mindspeed-rl")


def test_mindspeed_rl_cannot_make_its_data_on_a_standin(tree: Tree) -> None:
    mindspeed_rl(tree)
    tree.manifest["base"]["kind"] = "standin"
    tree.manifest["may_skip"] += ["train.data", "train.step"]
    found = outcomes(tree)
    assert [found[name].status for name in IDS] == ["passed", "skipped", "passed", "skipped"]
    assert found["train.data"].message == "stand-in: it imports acl"


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("openai_harmony.HarmonyError: failed to download or load vocab file", "TIKTOKEN_ENCODINGS_BASE"),
        ("ValueError: Total available GPUs 0 is less than total desired GPUs 1", "ray counts no NPU"),
        ("ValueError: Total available GPUs 1 is less than total desired GPUs 2", ""),
    ],
)
def test_a_known_cause_comes_with_what_to_do(said: str, word: str) -> None:
    details = judged_step(Step("verl", 1, "ended", said), 1).details
    assert details[0] == said
    assert word in details[-1]
    assert len(details) == (2 if word else 1)


def test_metrics_are_read_through_colours_and_prefixes() -> None:
    text = f"step:0 - val/score:1.0\n\x1b[36m{VERL_LINE}\x1b[0m\nbye"
    assert metrics(text)["actor/grad_norm"] == 1.5
    assert metrics("nothing: here - at all") == {}
    assert metrics("iteration: 1 / 1 | grpo/lr : 1.000000e-06 | a : b") == {"grpo/lr": 1e-6}
    assert judged_step(Step("verl", 0, "", text), 2).message.startswith("verl did one GRPO step on 2 NPUs: ")


def test_the_error_of_a_ray_actor_is_the_message() -> None:
    text = (
        "(WorkerDict pid=12) RuntimeError: HCCL is out of ports\nray.exceptions.RayTaskError(RuntimeError): see above\n"
    )
    found = judged_step(Step("verl", 1, "ended with code 1 before it was done", text), 1)
    assert found.message.endswith("ray.exceptions.RayTaskError(RuntimeError): see above")
    assert found.details[0].startswith("(WorkerDict pid=12)")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "(vLLMHttpServer pid=7) \x1b[0;36m(Worker pid=8)\x1b[0;0m ERROR 11-28 13:43:48 [core.py:824] OSError: gone",
            "OSError: gone",
        ),
        (
            "\x1b[33m(autoscaler +1m1s)\x1b[0m Error: No available node types can fulfill resource request {'CPU': 3}",
            "Error: No available node types can fulfill resource request {'CPU': 3}",
        ),
        ("(Worker pid=7, ip=192.0.2.1) ValueError: no", "ValueError: no"),
    ],
)
def test_an_error_behind_the_names_of_processes_is_the_message(line: str, why: str) -> None:
    """A trainer whose engine died waits until it is ended; only these lines tell why."""
    found = judged_step(Step("verl", None, "no answer within 1200 s", f"{line}\n(pid=7) still waiting\n"), 1)
    assert (found.status, found.message) == ("failed", f"verl no answer within 1200 s: {why}")


def test_the_modules_of_the_stages_report_what_they_cannot_import(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real ones, with a Python that has nothing of what they import."""
    monkeypatch.setattr(train, "TRAINING", str(REPOSITORY / "templates/rootfs/opt/cannery/training"))
    found = outcomes(tree)
    assert found["train.model"].message == "ModuleNotFoundError: No module named 'tokenizers'"
    assert found["train.data"].message == "train.model failed"
