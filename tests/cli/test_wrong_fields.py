"""Every field of a file with a wrong value: one line that names the file, the line and the field, and exit code 2."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nanovllm.errors import WorkloadError
from sim.calibration import write_calibration
from sim.readers.any_format import Reading
from tests.cli.conftest import RunCommand
from tests.cli.test_damaged_files import AZURE, KINDS, MOONCAKE, SHAREGPT, WORKLOAD, lines, place, small_load
from tests.cli.test_errors import assert_refused
from tests.sim.comparison_files import example_calibration

__all__ = ["small_load"]

MISSING = "missing"
WRONG: list[object] = [None, "x", "", -1, -0.5, float("nan"), float("inf"), 1e300, 10**400, 2**63, True, [], {}]
FINE: dict[tuple[str, str], tuple[object, ...]] = {
    ("workload", "id"): ("x",),
    ("workload", "arrival"): (None, MISSING),
    ("sharegpt", "input_toks"): (MISSING,),
}
"""What is allowed of these for a field."""
ROWS = {"mooncake": MOONCAKE, "sharegpt": SHAREGPT, "workload": WORKLOAD}


def assert_wrong(path: Path, line: int, field: str) -> None:
    """Reading it raises what commands print as their error."""
    with pytest.raises(WorkloadError) as caught:
        list(Reading().read(path))
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert field in str(caught.value)


def is_fine(name: str, field: str, value: object) -> bool:
    return any(value is allowed or value == allowed for allowed in FINE.get((name, field), ()))


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, row in ROWS.items() for field in row])
def test_a_wrong_value_is_named_with_its_line(name: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    row = ROWS[name]
    for value in [value for value in (*WRONG, MISSING) if not is_fine(name, field, value)]:
        wrong = {key: old for key, old in row.items() if key != field} | ({} if value is MISSING else {field: value})
        path.write_bytes(lines(row, {"id": 7, **wrong} if name == "workload" and field != "id" else wrong))
        assert_wrong(path, 2, field)


@pytest.mark.parametrize("column", AZURE.splitlines()[0].split(","))
def test_a_wrong_cell_is_named_with_its_line(column: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    header, good, _ = AZURE.splitlines()
    index = header.split(",").index(column)
    for value in (
        "",
        "x",
        "-1",
        "-0.5",
        "nan",
        "inf",
        "1e400",
        "1.5",
        "9" * 400,
        str(2**63),
        " 5",
        '"5"',
        "\u0665",
        "0x10",
    ):
        cells = good.split(",")
        cells[index] = value
        path.write_text("\n".join([header, good, ",".join(cells)]) + "\n")
        assert_wrong(path, 3, column)


UNSORTED = {
    "azure": "\n".join([AZURE.splitlines()[line] for line in (0, 2, 1)]).encode(),
    "mooncake": lines(MOONCAKE, {**MOONCAKE, "timestamp": 4}),
    "sharegpt": lines(SHAREGPT, {**SHAREGPT, "arrival_time_ns": 4}),
}


@pytest.mark.parametrize("name", UNSORTED)
def test_a_trace_that_goes_back_in_time(name: str, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / KINDS[name].place
    path.write_bytes(UNSORTED[name])
    number = 3 if name == "azure" else 2
    for command in ("workload check", "simulate"):
        assert_refused(run(*command.split(), path), f"{path}:{number}: ", "a trace must be sorted")


@pytest.mark.parametrize("name", ["mooncake", "sharegpt", "azure"])
def test_a_prompt_of_no_tokens(name: str, tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / KINDS[name].place
    nothing = {
        "azure": AZURE.replace(",396,", ",0,").encode(),
        "mooncake": lines(MOONCAKE, {**MOONCAKE, "input_length": 0, "hash_ids": []}),
        "sharegpt": lines(SHAREGPT, {**SHAREGPT, "input_toks": 0, "input_tok_ids": []}),
    }
    path.write_bytes(nothing[name])
    field = {"azure": "ContextTokens", "mooncake": "input_length", "sharegpt": "input_tok_ids"}[name]
    assert_refused(run("simulate", path), f"{path}:{3 if name == 'azure' else 2}: ", field)


def test_a_foreign_calibration(tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = tmp_path / "card.json"
    write_calibration(path, example_calibration())
    good = json.loads(path.read_bytes())
    for change in ({"kind": "another program's"}, {"schema": 99}, {"num_blocks": -1}, {"device": {}}, {"more": 1}):
        path.write_text(json.dumps({**good, **change}))
        assert_refused(run("simulate", small_load, "--calibration", path), path)
    shutil.copy(small_load, path)
    assert_refused(run("simulate", small_load, "--calibration", path), path)


@pytest.mark.parametrize("field", ["time", "arrival"])
def test_a_trace_with_negative_time(field: str, tmp_path: Path, run: RunCommand) -> None:
    path = place(KINDS["trace"], tmp_path)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    events[1][field] = -1.0
    path.write_bytes(lines(*events))
    for command in ("trace metrics", "compare"):
        assert_refused(run(*command.split(), path), f"{path}:2: ", "-1.0 s")
    outcome = run("trace", "check", path)
    assert (outcome.code, f"{path}:2: " in outcome.out) == (1, True)
