"""What ends a rank ends the run with one error and leaves no process; a step without memory ends nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nanovllm.engine.engine import Engine
from nanovllm.errors import ConfigError, MemoryPoolError, NanoVllmError, StepError, WorkerError
from nanovllm.models.decoder import Decoder
from nanovllm.runner import rank
from nanovllm.runner.model_runner import ModelRunner
from nanovllm.runner.tensor_parallel import worker_process
from tests.runner.tensor_parallel.runs import (
    CONFIG,
    answers,
    is_alive,
    process_ids,
    requests,
    running,
    wait_until_ended,
)
from tests.runner.test_model_runner import SPEC
from tests.tiny_models import save_model

PROJECT = Path(__file__).parents[3]


def sabotage(monkeypatch: pytest.MonkeyPatch, deed: str) -> None:
    monkeypatch.setattr(worker_process, "WORKER_MODULE", "tests.runner.tensor_parallel.saboteur")
    monkeypatch.setenv("SABOTAGE", deed)


def run_until(error: type[NanoVllmError], match: str, runner: ModelRunner) -> None:
    with pytest.raises(error, match=match):
        answers(runner, requests())


def assert_is_broken(runner: ModelRunner, match: str) -> None:
    """All that comes raises the same, and no process is left."""
    run_until(WorkerError, match, runner)
    assert not any(is_alive(process_id) for process_id in process_ids(runner))


# ---- other ranks -----------------------------------------------------------------------------------------------


def test_a_rank_that_is_killed_between_steps() -> None:
    with running(2, spec=SPEC) as runner:
        answers(runner, requests())
        os.kill(process_ids(runner)[0], signal.SIGKILL)
        match = r"^rank 1 \(process \d+\) was killed by SIGKILL$"
        run_until(WorkerError, match, runner)
        assert_is_broken(runner, match)


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_that_is_killed_in_a_step(size: int) -> None:
    """While the others wait for what it should have computed."""
    with running(size, spec=SPEC) as runner:
        engine, victim = Engine(CONFIG, runner), process_ids(runner)[0]
        for request in requests():
            engine.add(request)
        engine.step()
        os.kill(victim, signal.SIGSTOP)
        with subprocess.Popen(["sh", "-c", f"kill -9 {victim}"]):
            run_until(WorkerError, r"^rank 1 \(process \d+\) was killed by SIGKILL$", runner)
        assert_is_broken(runner, "rank 1 .* was killed by SIGKILL")


@pytest.mark.parametrize(
    ("deed", "match"),
    [
        ("killed in a step", r"^rank 1 \(process \d+\) was killed by SIGKILL$"),
        ("a bug in a step", r"^rank 1 \(process \d+\) failed: RuntimeError: a bug \(saboteur.py:\d+\)$"),
        ("no memory in a step", r"^rank 1 .* failed: a step of \d+ tokens in \d+ sequences ran out of memory on cpu: "),
    ],
)
def test_a_rank_that_fails_in_a_step(deed: str, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch, deed)
    with running(2, spec=SPEC) as runner:
        run_until(WorkerError, match, runner)
        assert_is_broken(runner, match)


@pytest.mark.parametrize(
    ("deed", "error", "match"),
    [
        ("ending at once", WorkerError, r"^rank 1 \(process \d+\) has ended with code 3$"),
        ("no memory for weights", MemoryPoolError, "^rank 1: the weights need .* choose a smaller model or dtype$"),
    ],
)
def test_a_rank_that_cannot_be_set_up(
    deed: str, error: type[NanoVllmError], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch, deed)
    with pytest.raises(error, match=match), running(2, spec=SPEC):
        pass


def test_a_rank_with_less_memory_limits_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch, "few blocks")
    with running(2, spec=SPEC, num_kvcache_blocks=-1) as runner:
        assert runner.num_kv_blocks == 17
        answers(runner, requests())


# ---- memory ----------------------------------------------------------------------------------------------------


def check_one_step_fails(runner: ModelRunner) -> None:
    work = requests()
    with running(1, spec=SPEC) as alone:
        expected = answers(alone, work)
    failed = set()
    for result in Engine(CONFIG, runner).run(work):
        if result.error is not None:
            assert isinstance(result.error, StepError)
            assert "ran out of memory on cpu" in str(result.error)
            failed |= {seq.request_id for seq in result.finished}
        else:
            assert all(seq.completion_token_ids == expected[seq.request_id] for seq in result.finished)
    assert 1 <= len(failed) < len(work)
    assert answers(runner, work) == expected


def test_no_memory_in_another_rank_fails_the_step_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch, "no memory before a step")
    with running(2, spec=SPEC) as runner:
        check_one_step_fails(runner)


def test_no_memory_in_rank_0_fails_the_step_only(monkeypatch: pytest.MonkeyPatch) -> None:
    activation_bytes, calls = rank.activation_bytes, []

    def failing_once(*args: object) -> int:
        calls.append(args)
        if len(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory.\nDetails")
        return activation_bytes(*args)

    with running(2, spec=SPEC) as runner:
        monkeypatch.setattr(rank, "activation_bytes", failing_once)
        check_one_step_fails(runner)


# ---- rank 0 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("a bug"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (torch.OutOfMemoryError("CUDA out of memory."), WorkerError),
    ],
)
def test_an_error_in_rank_0(error: BaseException, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    with running(2, spec=SPEC) as runner:
        answers(runner, requests())
        with monkeypatch.context() as patch:
            patch.setattr(Decoder, "forward", fail)
            with pytest.raises(raised):
                answers(runner, requests())
        assert_is_broken(runner, "^rank 0 failed in the middle of a step: ")


def test_too_many_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ConfigError, match="tensor_parallel_size=2 is not allowed: at most 1, the GPUs that torch finds"
    ):
        ModelRunner(replace(CONFIG, device="cuda", tensor_parallel_size=2), spec=SPEC)


# ---- whole processes -------------------------------------------------------------------------------------------

ENDLESS = """
    import sys, torch
    torch.set_num_threads(1)
    from tests.runner.test_model_runner import SPEC
    from tests.runner.tensor_parallel.runs import *
    runner = ModelRunner(replace(CONFIG, tensor_parallel_size=3 - 1), spec=SPEC)
    print(*process_ids(runner), flush=True)
    while True:
        answers(runner, requests())
        print("answered", flush=True)
"""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_when_rank_0_ends_the_others_do(number: signal.Signals) -> None:
    with start(ENDLESS) as program:
        assert program.stdout is not None
        (worker_id,) = map(int, program.stdout.readline().split())
        assert is_alive(worker_id)
        assert program.stdout.readline() == "answered\n"
        program.send_signal(number)
        program.wait()
        wait_until_ended(worker_id)


def test_rank_0_ends_while_another_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SABOTAGE", "standing still")
    program = ENDLESS.replace(
        "import sys, torch",
        "import torch; from nanovllm.runner.tensor_parallel import worker_process as w; "
        "w.WORKER_MODULE = 'tests.runner.tensor_parallel.saboteur'",
    )
    with start(program) as process:
        assert process.stdout is not None
        (worker_id,) = map(int, process.stdout.readline().split())
        process.kill()
        process.wait()
        wait_until_ended(worker_id)


def test_the_command_tells_it_in_a_line(tmp_path: Path) -> None:
    program = f"""
        import os, signal, sys
        from nanovllm.cli.main import main
        from nanovllm.runner.model_runner import ModelRunner
        compute, calls = ModelRunner._compute, []
        def killing(self, *args):
            calls.append(1)
            if len(calls) == 3:
                os.kill(self._workers.process_ids[0], signal.SIGKILL)
            return compute(self, *args)
        ModelRunner._compute = killing
        sys.exit(main(["bench", "{tmp_path / "load.jsonl"}", "--model", "{save_model("llama", tmp_path / "model")}",
                       "--device", "cpu", "--tensor-parallel-size", "2", "--num-threads", "1",
                       "--num-kvcache-blocks", "16", "--max-model-len", "128", "--kvcache-block-size", "16"]))
    """
    lines = [f'{{"id": {index}, "prompt_len": 20, "max_tokens": 30}}' for index in range(3)]
    (tmp_path / "load.jsonl").write_text("\n".join(lines))
    with start(program) as process:
        out, err = process.communicate()
    assert err.startswith("error: rank 1 (process ")
    assert err.endswith(") was killed by SIGKILL\n")
    assert err.count("\n") == 1
    assert (process.returncode, out) == (1, "")
