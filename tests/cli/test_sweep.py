"""``nanovllm sweep``: tables, exit codes, figures, and mistakes in one line."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from nanovllm.cli import workload
from nanovllm.cli.cluster import ClusterInput
from nanovllm.cli.workload_input import WorkloadInput
from sim.sweeps.settings import TYPES
from tests.cli.conftest import RunCommand
from tests.cli.test_errors import assert_refused
from tests.cli.test_interrupt import COMMAND
from tests.sim.sweeps.small import SETTINGS

pytest.importorskip("joblib", reason="needs the extra sweep")
pytest.importorskip("pyarrow", reason="needs the extra sweep")


def words_of(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


SMALL = words_of(SETTINGS)
TWO_BY_TWO = [*SMALL, "--jobs", "1", "--vary", "policy=prefill_first,mixed", "--vary", "max_num_seqs=2,4"]


def test_a_table_with_what_varies_and_how_it_went(run: RunCommand, tmp_path: Path) -> None:
    outcome = run("sweep", *TWO_BY_TWO, "--sort", "-output_tokens_per_s", "--rows", 3)
    assert (outcome.code, outcome.err) == (0, "")
    header, *rows = [line for line in outcome.out.splitlines() if line[0] in "┃│"]
    assert header.split("┃")[1].strip() == "policy"
    assert len(rows) == 3
    throughputs = [float(row.split("│")[3].replace(",", "")) for row in rows]
    assert throughputs == sorted(throughputs, reverse=True)
    assert outcome.out.endswith("4 cells, the first 3 are shown\n")


def test_where_the_times_come_from_is_told(run: RunCommand) -> None:
    cards = run("sweep", *SMALL, "--jobs", 1, "--vary", "gpu=l4,h200", "--vary", "model=qwen3-0.6b,qwen3-8b").out
    assert "times: roofline of l4, h200 (data sheet, not measured), qwen3-0.6b, qwen3-8b\n" in cards
    measured = run("sweep", *SMALL, "--jobs", 1, "--vary", "calibration=none,h200-qwen3-0.6b").out
    modelled = "roofline of h200 (data sheet, not measured), qwen3-0.6b"
    assert f"times: calibration h200-qwen3-0.6b; {modelled}\n" in measured


def test_json_has_a_row_a_line(run: RunCommand) -> None:
    outcome = run("sweep", *TWO_BY_TWO, "--json")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(row["policy"], row["max_num_seqs"]) for row in rows] == [
        ("prefill_first", 2),
        ("prefill_first", 4),
        ("mixed", 2),
        ("mixed", 4),
    ]
    assert all(row["time_to_first_token_p99_s"] > 0 for row in rows)


def test_a_cell_that_fails_is_told_and_the_others_go_on(run: RunCommand) -> None:
    outcome = run("sweep", *SMALL, "--vary", "tensor_parallel_size=1,3,8,5,32,64,7", "--jobs", 1)
    assert outcome.code == 1
    assert outcome.out.endswith("7 cells, 5 failed\n")
    assert outcome.err.startswith("error: tensor_parallel_size=3: tensor_parallel_size=3 is not allowed: a divisor of")
    assert outcome.err.count("\n") == 5


def test_a_cell_none_of_whose_requests_can_run_fails(run: RunCommand) -> None:
    outcome = run("sweep", *words_of({**SETTINGS, "num_kvcache_blocks": 1}), "--jobs", 1)
    assert outcome.code == 1
    assert outcome.err.startswith("error: none of the requests can run; request 0: ")


def test_requests_that_are_refused_are_told(run: RunCommand) -> None:
    settings = {**SETTINGS, "num_kvcache_blocks": 5, "slo_ttft": 10}
    outcome = run("sweep", *words_of(settings), "--jobs", 1, "--vary", "policy=prefill_first,mixed")
    assert (outcome.code, outcome.out.count("│ refused")) == (0, 0)
    assert "refused" in outcome.out.splitlines()[1]
    num_refused = json.loads(run("sweep", *words_of(settings), "--jobs", 1, "--json").out)["num_rejected"]
    assert 0 < num_refused < 8
    assert outcome.err == (
        f"note: {2 * num_refused} requests were refused in 2 of 2 cells, and count as requests that got nothing\n"
    )


def test_a_store_is_gone_on_with_and_tells_its_sweep(run: RunCommand, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = run("sweep", *TWO_BY_TWO, "--store", store)
    again = run("sweep", "--store", store)
    assert (first.code, again.code) == (0, 0)
    assert again.out == first.out.replace("4 cells", "4 cells, 4 from the store")
    assert_refused(run("sweep", *TWO_BY_TWO, "--set", "seed=3", "--store", store), "holds another sweep")


def test_more_values_in_the_same_store_compute_what_is_new(run: RunCommand, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run("sweep", *TWO_BY_TWO, "--store", store)
    words = [word.replace("2,4", "2,4,8") for word in TWO_BY_TWO]
    assert run("sweep", *words, "--store", store).out.endswith("6 cells, 4 from the store\n")
    assert run("sweep", "--store", store).out.endswith("6 cells, 6 from the store\n")


def test_a_sweep_file_and_options_that_change_it(run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    lines = [f"  {name}: {value}" for name, value in SETTINGS.items()]
    path.write_text("\n".join(["settings:", *lines, "vary:", "  max-num-seqs: [2, 4, 8]", "  seed: [0, 1]"]))
    assert "6 cells" in run("sweep", path, "--jobs", 1).out
    outcome = run("sweep", path, "--jobs", 1, "--set", "max_num_seqs=2", "--vary", "seed=5,6,7", "--json")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(row["max_num_seqs"], row["seed"]) for row in rows] == [(2, 5), (2, 6), (2, 7)]


def test_values_with_commas_are_parted_by_semicolons(run: RunCommand) -> None:
    outcome = run(
        "sweep", "--vary", "prompt_len=uniform:4,8; fixed:5", "--set", "num_requests=2", "--jobs", 1, "--json"
    )
    assert [json.loads(line)["prompt_len"] for line in outcome.out.splitlines()] == ["uniform:4,8", "fixed:5"]


def test_figures(run: RunCommand, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    paths = {name: tmp_path / f"{name}.png" for name in ("pareto", "cliff", "heatmap")}
    options = [word for name, path in paths.items() for word in (f"--{name}", path)]
    settings = words_of({name: value for name, value in SETTINGS.items() if name != "num_kvcache_blocks"})
    sizes = ["--vary", "num_kvcache_blocks=8,12,40", "--vary", "policy=prefill_first,mixed"]
    outcome = run("sweep", *settings, *sizes, "--jobs", 1, *options, "--value", "num_preemptions")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths.values())


@pytest.mark.parametrize(
    ("value", "title"),
    [
        ("output_tokens_per_s", "Output tokens/s"),
        ("time_to_first_token_p99_s", "Time to first token p99, s"),
        ("num_preemptions", "Preemptions"),
        ("peak_kv_use", "Peak KV use"),
    ],
)
def test_a_heat_map_is_headed_by_words_and_a_unit(value: str, title: str, run: RunCommand, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    path = tmp_path / "map.svg"
    assert run("sweep", *TWO_BY_TWO, "--heatmap", path, "--value", value).code == 0
    assert f"<!-- {title} -->" in path.read_text(encoding="utf-8")


def test_a_heat_map_shows_the_wait_for_the_first_token_unless_told_otherwise(run: RunCommand, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    path = tmp_path / "map.svg"
    assert run("sweep", *TWO_BY_TWO, "--heatmap", path).code == 0
    assert "<!-- Time to first token p99, s -->" in path.read_text(encoding="utf-8")


def test_a_single_setting_is_told_with_its_name(run: RunCommand, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    path = tmp_path / "frontier.svg"
    assert run("sweep", *SMALL, "--jobs", 1, "--vary", "max_num_seqs=1,2", "--pareto", path).code == 0
    assert "<!-- max_num_seqs 2 -->" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("why", ["prompt_len=5000", "tensor_parallel_size=3"])
@pytest.mark.parametrize(
    "words",
    [
        ["--vary", "num_kvcache_blocks=1,2", "--pareto"],
        ["--vary", "num_kvcache_blocks=1,2", "--cliff"],
        ["--set", "num_kvcache_blocks=1", "--vary", "replicas=1,2", "--vary", "router=round_robin", "--routers"],
    ],
)
def test_without_an_answer_there_is_nothing_to_draw(
    words: list[str], why: str, run: RunCommand, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    outcome = run("sweep", "--set", why, "--set", "num_requests=2", "--jobs", 1, *words, tmp_path / "picture.png")
    assert outcome.code == 2
    assert outcome.err.endswith("error: there is nothing to draw: in no cell was a request completed\n")
    assert not (tmp_path / "picture.png").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "nothing to simulate"),
        (["--store", "nowhere"], "nothing to simulate"),
        (["--vary", "policy"], "vary='policy' is not allowed: a name, =, and a value"),
        (["--vary", "polcy=mixed"], "there is no such setting"),
        (["--vary", "seed=1,2", "--vary", "seed=3"], "vary='seed=3' is not allowed: seed is given twice"),
        (["--set", "seed=1", "--set", "seed=1"], "set='seed=1' is not allowed: seed is given twice"),
        (["--set", "max_num_seqs=1", "--set", "max-num-seqs=2"], "a setting may be there once"),
        (["twice.yaml"], "twice.yaml: gpu stands there twice, on lines 1 and 2"),
        (["sections.yaml"], "sections.yaml: vary stands there twice, on lines 1 and 2"),
        (["ring.yaml"], "there is no such setting"),
        (["--vary", "gpu=h200,abacus"], "gpu='abacus'"),
        (["missing.yaml"], "missing.yaml: cannot be read"),
        (["empty.yaml"], "empty.yaml: is empty"),
        (["list.yaml"], "list.yaml: does not describe a sweep"),
        (["broken.yaml"], "broken.yaml: does not describe a sweep"),
        (["other.yaml"], "unknown field"),
        (["wrong.yaml"], "wrong.yaml: max_num_seqs=0 is not allowed"),
        (["wrong.yaml", "--pareto", "wrong.yaml"], "is read by this command"),
        (["--set", "gpu=l4", "--pareto", "a.gif"], "must end in .png or .svg"),
        (["--set", "gpu=l4", "--pareto", "a.png", "--cliff", "a.png"], "is written twice"),
        (["--set", "gpu=l4", "--pareto", "nowhere/a.png"], "nowhere/a.png: cannot be written"),
        (["--set", "gpu=l4", "--cliff", "a.png"], "let it vary"),
        (["--vary", "num_kvcache_blocks=8,9", "--vary", "seed=1,2,3,4", "--cliff", "a.png"], "lines: here are 4"),
        (["--set", "gpu=l4", "--heatmap", "a.png"], "two settings that vary, here are 0"),
        (["--vary", "gpu=l4", "--vary", "seed=1", "--heatmap", "a.png", "--value", "beauty"], "value='beauty'"),
        (["--set", "gpu=l4", "--value", "hit_rate"], "value='hit_rate' is not allowed: only together with heatmap"),
        (["--set", "gpu=l4", "--value", "", "--pareto", "a.png"], "only together with heatmap"),
        (["--vary", "gpu=l4", "--vary", "seed=1", "--heatmap", "a.png", "--value", ""], "value='' is not allowed"),
        (["--set", "num_requests=1", "--sort", "beauty"], "sort='beauty' is not allowed: one of cell"),
    ],
)
def test_mistakes(
    words: list[str], part: str, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "empty": "",
        "list": "- a\n- b",
        "broken": "settings: {a: [",
        "other": "settings: {}\nvaries: {}",
        "wrong": "settings: {max_num_seqs: 0}",
        "twice": "settings: {gpu: l4,\n  gpu: h100}",
        "sections": "vary: {seed: [1]}\nvary: {gpu: [l4]}",
        "ring": "settings: &ring {a: *ring}",
    }
    for name, text in texts.items():
        Path(f"{name}.yaml").write_text(text)
    assert_refused(run("sweep", *words), part)


def test_every_option_that_makes_or_reads_a_load_is_a_setting() -> None:
    makers = (workload.make, workload.make_sessions, workload.make_agents)
    options = {name for maker in makers for name in inspect.signature(maker).parameters} - {"output"}
    options |= {field.name for field in fields(WorkloadInput)} | {field.name for field in fields(ClusterInput)}
    assert sorted(options - set(TYPES)) == []


def test_without_ray_it_says_how_to_get_it(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = run("sweep", *TWO_BY_TWO, "--ray", "local")
    assert_refused(outcome, "this needs ray: pip install 'nanovllm-lab[cluster]'")


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_leaves_a_store_to_go_on_with(jobs: int, run: RunCommand, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    # A FIFO in the place of a load wakes this process when a cell begins to read it, and lets it wait.
    os.mkfifo(tmp_path / "load.jsonl")
    words = ["--vary", f"workload={tmp_path / 'missing.jsonl'},{tmp_path / 'load.jsonl'}"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "sweep", *words, "--store", str(store), "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        with (tmp_path / "load.jsonl").open("wb"):  # opens when it is read: for its key, in the process itself
            pass
        with (tmp_path / "load.jsonl").open("wb"):  # and now by the cell
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate()
    assert process.returncode == 130
    assert err.startswith("note: interrupted after ")
    assert err.count("\n") == 1
