"""``nanovllm compare``, and ``simulate`` with other cost models than the roofline."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from nanovllm.trace.jsonl import read_trace, write_trace
from sim.calibration import write_calibration
from tests.cli.conftest import RunCommand
from tests.sim.comparison_files import example_calibration, write_vllm_run
from tests.sim.latency_files import write_tables


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    path = tmp_path / "card.json"
    write_calibration(path, example_calibration())
    return path


@pytest.fixture
def vllm_run(tmp_path: Path) -> Path:
    directory = tmp_path / "vllm"
    directory.mkdir()
    return write_vllm_run(write_tables(directory))


def test_a_simulated_run_is_like_itself(run: RunCommand, trace: Path) -> None:
    outcome = run("compare", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert "time per output token" in outcome.out
    assert "decode step" in outcome.out
    assert "(+0.0%)" in outcome.out
    assert "the decisions are the same" in outcome.out
    assert "simulated times: roofline of h200 (data sheet, not measured), qwen3-0.6b\n" in outcome.out


def test_a_calibration_makes_another_time_of_the_same_decisions(
    run: RunCommand, trace: Path, calibration: Path, tmp_path: Path
) -> None:
    again, picture = tmp_path / "again.jsonl", tmp_path / "run.png"
    outcome = run("compare", trace, "--calibration", calibration, "--json", "--trace", again, "--figure", picture)
    told = json.loads(outcome.out)
    assert told["same_decisions"] is True
    assert told["num_requests"] == 3
    assert abs(told["errors"]["latencies"]["end to end"]["mean"]) > 0.01
    assert told["latencies"]["end to end"]["mean_absolute_error"] > 0.01
    assert {"prefill step", "decode step", "decode on device"} <= set(told["step_times"])
    assert read_trace(again).problem is None
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_other_decisions_are_told(run: RunCommand, trace: Path) -> None:
    told = run("compare", trace, "--policy", "mixed").out
    assert "the decisions part: step " in told
    assert "(A is the real run, B the simulated one)" in told


def test_a_run_of_vllm_is_compared_by_the_tables_beside_it(run: RunCommand, vllm_run: Path) -> None:
    outcome = run("compare", vllm_run, "--num-kvcache-blocks", 50)
    assert (outcome.code, outcome.err) == (0, "")
    assert "3 requests" in outcome.out
    assert "simulated times: latency tables of " in outcome.out
    assert "decisions" not in outcome.out


def test_a_card_that_is_named_is_taken_instead_of_the_tables_beside_a_run(run: RunCommand, vllm_run: Path) -> None:
    tables, h200, l4 = (
        json.loads(run("compare", vllm_run, "--num-kvcache-blocks", 50, "--json", *gpu).out)["simulated_tokens_per_s"]
        for gpu in ((), ("--gpu", "h200"), ("--gpu", "l4"))
    )
    assert tables != h200 > l4


def test_a_run_on_several_gpus_is_compared_with_as_many(run: RunCommand, workload: Path, tmp_path: Path) -> None:
    path, card = tmp_path / "run.jsonl", ("--gpu", "h100", "--model", "qwen3-8b")
    assert run("simulate", workload, *card, "--tensor-parallel-size", 4, "--trace", path).code == 0
    assert json.loads(run("compare", path, *card, "--json").out)["throughput_error"] == 0
    alone = json.loads(run("compare", path, *card, "--tensor-parallel-size", 1, "--json").out)
    assert alone["throughput_error"] < -0.3


def test_times_of_several_gpus_are_for_runs_on_as_many(run: RunCommand, trace: Path, tmp_path: Path) -> None:
    path, found = tmp_path / "two.json", example_calibration()
    write_calibration(path, msgspec.structs.replace(found, facts={**found.facts, "tensor_parallel_size": 2}))
    outcome = run("compare", trace, "--calibration", path)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith("error: tensor_parallel_size=1 is not allowed: 2, as when the times were measured")
    assert run("compare", trace, "--calibration", path, "--tensor-parallel-size", 2).code == 0


def test_a_run_that_does_not_tell_its_model_is_said_to(run: RunCommand, trace: Path, tmp_path: Path) -> None:
    path, events = tmp_path / "run.jsonl", read_trace(trace).events
    write_trace([msgspec.structs.replace(events[0], model=""), *events[1:]], path)
    outcome = run("compare", path)
    told = "note: the run does not tell which model it ran: qwen3-0.6b is simulated, --model names another\n"
    assert (outcome.code, outcome.err) == (0, told)
    outcome = run("compare", path, "--model", "qwen3-8b")
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--table", "nowhere"], "nowhere: is no directory"),
        (["--calibration", "nowhere.json"], "nowhere.json: no such file; calibrations that need none: h200-qwen3-0.6b"),
        (["--table", "x", "--calibration", "y"], "calibration='y' is not allowed: not together with table"),
        (["--figure", "run.bmp"], "run.bmp: is no name for a picture"),
        (["--gpu", "abacus"], "gpu='abacus' is not allowed"),
        (["--dtype", "int4"], "dtype='int4' is not allowed: one of auto, "),
        (["--tensor-parallel-size", "3"], "tensor_parallel_size=3 is not allowed: a divisor of this model's 16 heads"),
    ],
)
def test_a_mistake_is_one_line(run: RunCommand, trace: Path, options: list[str], problem: str) -> None:
    outcome = run("compare", trace, *options)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {problem}")
    assert outcome.err.count("\n") == 1


def test_a_foreign_file_or_another_model_is_one_line(
    run: RunCommand, trace: Path, workload: Path, vllm_run: Path, calibration: Path
) -> None:
    for arguments, problem in (
        (("compare", workload), "a trace begins with a line of type trace_started"),
        (("compare", trace, "--calibration", trace), "is no calibration of schema 2"),
        (("compare", vllm_run), "num_kvcache_blocks=None is not allowed: a vLLM run does not tell it"),
        (("simulate", workload, "--calibration", workload), "is no calibration of schema 2"),
        (
            ("simulate", workload, "--calibration", calibration, "--model", "qwen3-8b"),
            "the calibration is one of qwen3",
        ),
        (
            ("simulate", workload, "--table", vllm_run, "--model", "qwen3-8b"),
            "the latencies must be those of the model",
        ),
    ):
        outcome = run(*arguments)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert problem in outcome.err


def test_no_file_that_is_read_is_written_over(
    run: RunCommand, trace: Path, workload: Path, vllm_run: Path, calibration: Path
) -> None:
    files = [calibration, *vllm_run.iterdir()]
    contents = [path.read_bytes() for path in files]
    for arguments in (
        ("compare", trace, "--calibration", calibration, "--trace", calibration),
        ("simulate", workload, "--calibration", calibration, "--trace", calibration),
        ("simulate", workload, "--table", vllm_run, "--trace", vllm_run / "table_dense.csv"),
        *(("compare", vllm_run, "--num-kvcache-blocks", 50, "--trace", path) for path in vllm_run.iterdir()),
    ):
        outcome = run(*arguments)
        assert outcome.code == 2
        assert outcome.err == f"error: {arguments[-1]}: is read by this command: another file is needed to write to\n"
    assert [path.read_bytes() for path in files] == contents


def test_trace_and_picture_are_two_files(run: RunCommand, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.png"
    outcome = run("compare", trace, "--trace", path, "--figure", path)
    assert outcome.code == 2
    assert outcome.err.endswith("is written twice by this command: another file is needed for one of the two\n")
    assert not path.exists()


def test_a_directory_without_a_run_is_one_line(run: RunCommand, tmp_path: Path) -> None:
    outcome = run("compare", tmp_path)
    problem = "is a directory, but none of a vLLM run: it has no real_requests.jsonl"
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path}: {problem}\n")


def test_simulate_takes_model_and_pool_from_what_was_measured(
    run: RunCommand, workload: Path, calibration: Path, vllm_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    assert (
        run("simulate", workload, "--calibration", calibration, "--kvcache-block-size", 16, "--trace", path).code == 0
    )
    header = read_trace(path).header
    assert (header.model, header.config["num_blocks"]) == ("qwen3-0.6b", 500)
    assert run("simulate", workload, "--table", vllm_run, "--num-kvcache-blocks", 9, "--trace", path).code == 0
    assert read_trace(path).header.model == "meta-llama/Llama-3.1-8B"
