"""The table model: its sums worked out by hand, and each way in which its files can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanovllm.engine.batch import ScheduledBatch
from nanovllm.errors import ConfigError, CostTableError
from nanovllm.model_spec import ModelSpec
from sim.cost_models import HostOverhead, Table
from sim.cost_models.latency_tables import read_latency_tables
from sim.cost_models.shape import StepShape
from sim.cost_models.table import vllm_graph_sizes
from tests.sim.latency_files import write_tables
from tests.sim.test_cost_models import scheduled

NOTHING = HostOverhead(step_s=0.0, sequence_s=0.0, layer_s=0.0)
MICRO = 1e-6


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_tables(tmp_path)


def step_us(directory: Path, batch: ScheduledBatch, **options: object) -> float:
    table = Table(tables=read_latency_tables(directory), num_layers=2, **{"host": NOTHING, **options})
    return table.step_time(batch).total_s / MICRO


def dense_us(num_tokens: int, num_sequences: int, num_layers: int = 2) -> float:
    return 2 * num_tokens + num_layers * 8 * num_tokens + 100 + num_sequences


def test_decodes_of_one_length(directory: Path) -> None:
    batch = scheduled((499, 1), (499, 1), is_prefill=False)
    assert step_us(directory, batch) == pytest.approx(dense_us(2, 2) + 2 * (2000 + 500))


def test_decodes_of_unequal_length_pay_a_share_of_the_longest(directory: Path) -> None:
    few = scheduled((99, 1), (899, 1), is_prefill=False)  # mean 500, half of the way to the longest: the bucket `low`
    assert step_us(directory, few) == pytest.approx(dense_us(2, 2) + 2 * (2000 + 500 + 0.5 * 400))
    batch = scheduled((99, 1), (899, 1), (899, 1), (899, 1), is_prefill=False)  # `many` were not measured
    assert step_us(directory, batch) == pytest.approx(dense_us(4, 4) + 2 * (4000 + 700 + 0.5 * 200))


def test_the_share_of_a_bucket_holds_in_it(directory: Path) -> None:
    text = (directory / "table_skew_fit.csv").read_text(encoding="utf-8").replace("high", "low")
    (directory / "table_skew_fit.csv").write_text(text, encoding="utf-8")
    decodes = scheduled((99, 1), (899, 1), is_prefill=False)
    assert step_us(directory, decodes) == pytest.approx(dense_us(2, 2) + 2 * (2000 + 500 + 0.25 * 400))
    mixed = scheduled((99, 1), (899, 1), (0, 60), is_prefill=True)  # the nearest chunk measured is 100
    assert step_us(directory, mixed) == pytest.approx(dense_us(62, 3) + 2 * (2000 + 600 + 500 - 0.25 * 400))


def test_chunks_count_as_one_with_as_many_pairs(directory: Path) -> None:
    batch = scheduled((100, 20), (40, 60), is_prefill=True)
    pairs = 20 * (100 + 10) + 60 * (40 + 30)
    assert StepShape.of(batch).chunk_pairs == pairs
    prefix = pairs / 80 - 40
    assert step_us(directory, batch) == pytest.approx(dense_us(80, 2) + 2 * (10 * 80 + prefix))
    short = scheduled((0, 20), (0, 20), is_prefill=True)  # fewer pairs than a single chunk has
    assert step_us(directory, short) == pytest.approx(dense_us(40, 2) + 2 * 10 * 40)


@pytest.mark.parametrize("lengths", [(10, 10, 10, 10), (2, 38), (25, 15)])
def test_new_prompts_count_as_one_prompt_of_all_their_tokens(directory: Path, lengths: tuple[int, ...]) -> None:
    several = scheduled(*((0, length) for length in lengths), is_prefill=True)
    assert StepShape.of(several).equivalent_prefix == 0
    one = scheduled((0, 40), is_prefill=True)
    num_more = len(lengths) - 1  # rows of the head, 1 us each
    assert step_us(directory, several) == pytest.approx(step_us(directory, one) + num_more)


def test_steps_are_padded_to_the_graphs_that_exist(directory: Path) -> None:
    three, four = (scheduled(*[(499, 1)] * num, is_prefill=False) for num in (3, 4))
    assert step_us(directory, three, graph_sizes=(1, 2, 4)) == pytest.approx(dense_us(4, 3) + 2 * (3000 + 500))
    assert step_us(directory, four, graph_sizes=(1, 2)) == step_us(directory, four)


def test_the_program_costs_time_between_steps(directory: Path) -> None:
    table = Table(tables=read_latency_tables(directory), num_layers=2)
    time = table.step_time(scheduled((9, 1), (9, 1), is_prefill=False))
    assert time.gap_s == pytest.approx(126e-6 + 2 * 4e-6)
    assert (time.host_s, time.device_s) == (0.0, time.total_s)


def test_the_sizes_of_vllm_s_graphs() -> None:
    assert vllm_graph_sizes(12) == (1, 2, 4, 8, 16, 24)
    sizes = vllm_graph_sizes(1024)
    assert (len(sizes), sizes[-1], sizes[-2], sizes[-18]) == (3 + 31 + 17, 512, 496, 248)


def test_tables_of_another_model_are_refused(directory: Path) -> None:
    tables = read_latency_tables(directory)
    assert Table.of_vllm(tables, ModelSpec.preset("llama-3.1-8b"), 8).num_layers == 32
    with pytest.raises(ConfigError, match=r"^table='meta-llama/Llama-3.1-8B' is not allowed: the latencies must be"):
        Table.of_vllm(tables, ModelSpec.preset("qwen3-0.6b"), 8)


# ---- wrong files ---------------------------------------------------------------------------------------------

DENSE, ATTENTION, SKEW, META = (f"table_{name}" for name in ("dense.csv", "attention.csv", "skew_fit.csv", "meta.yaml"))


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        (DENSE, "qkv_proj,1,1", "qkv_proj,1,-1", r"dense.csv:8: time_us is '-1': a number from 0 upward is needed"),
        (DENSE, "qkv_proj,1,1", "qkv_proj,1,soon", r"dense.csv:8: time_us is 'soon': a number from 0"),
        (DENSE, "qkv_proj,1,1", "qkv_proj,1,nan", r"dense.csv:8: time_us is 'nan': a number from 0"),
        (DENSE, "qkv_proj,1,1", "qkv_proj,1,1e300", r"dense.csv:8: time_us is '1e300': at most 1000000000000 is"),
        (DENSE, "qkv_proj,1,1", "qkv_proj,1", r"dense.csv:8: has not 3 values"),
        (DENSE, "qkv_proj,1,1", "qkv_proj,1001,1", r"dense.csv:9: layer 'qkv_proj' has two latencies for 1001 tokens"),
        (DENSE, "qkv_proj", "router", r"dense.csv:8: layer 'router' is not known: one of embedding, final"),
        (DENSE, "qkv_proj,1,1\nqkv_proj,1001,1001\n", "", r"dense.csv: layer 'qkv_proj' is missing"),
        (DENSE, "tokens", "batch", r"dense.csv:1: has no column 'tokens': the columns are layer, tokens, time_us"),
        ("table_per_sequence.csv", "sampler", "lm_head2", r"per_sequence.csv:4: layer 'lm_head2' is not known"),
        (ATTENTION, "0,0,1,0,", "0,0,1,-3,", r"attention.csv:\d+: kv_decode is '-3': a number from 0"),
        (ATTENTION, "0,0,1,2000,", "0,0,1,0,", r"attention.csv:\d+: the same point stands further up already"),
        (SKEW, "0.25,9", "none,9", r"skew_fit.csv:2: alpha is 'none': a number is needed"),
        (META, "model: meta", "modell: meta", r"meta.yaml: is no description of latency tables .*`model`"),
        (META, "gpu:", "gpu: [", r"meta.yaml: is no description of latency tables"),
        (META, "n_labels: [few, many]", "n_labels: [few]", r"meta.yaml: skew_fit needs n_bins and one label fewer"),
        (META, "    1: {", "    2: {", r"meta.yaml: skew_fit has no entry for one card"),
    ],
)
def test_a_mistake_is_one_clear_line(directory: Path, name: str, old: str, new: str, problem: str) -> None:
    path = directory / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(CostTableError, match=problem) as caught:
        read_latency_tables(directory)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"layer,tokens,time_us\n", b"\xff\xfe\x00", b"\x00\x00"])
def test_an_empty_or_foreign_file_is_one_clear_line(directory: Path, content: bytes) -> None:
    (directory / DENSE).write_bytes(content)
    with pytest.raises(CostTableError, match=r"table_dense\.csv.*(no column|no measurement|no CSV)"):
        read_latency_tables(directory)


def test_a_byte_order_mark_is_no_part_of_the_first_column(directory: Path) -> None:
    batch = scheduled((99, 1), (899, 1), is_prefill=False)
    time_us = step_us(directory, batch)
    for path in directory.glob("*.csv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert step_us(directory, batch) == time_us


def test_a_missing_file_or_directory_is_one_clear_line(directory: Path) -> None:
    (directory / ATTENTION).unlink()
    with pytest.raises(CostTableError, match=r"table_attention.csv: cannot be read: No such file"):
        read_latency_tables(directory)
    with pytest.raises(CostTableError, match=r"nowhere: is no directory: one with table_meta.yaml"):
        read_latency_tables(directory / "nowhere")


def test_tables_without_a_measurement_of_skew(directory: Path) -> None:
    meta = (directory / META).read_text(encoding="utf-8")
    (directory / META).write_text(meta[: meta.index("skew_fit")], encoding="utf-8")
    batch = scheduled((99, 1), (899, 1), is_prefill=False)
    assert step_us(directory, batch) == pytest.approx(dense_us(2, 2) + 2 * (2000 + 500))
