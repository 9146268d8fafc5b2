"""Files without an end, in place of each kind that a command reads: one line, and exit code 2."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from nanovllm import limited_reading
from nanovllm.cli.prompts import read_prompts
from nanovllm.errors import FileError, ModelError
from nanovllm.runner.model_directory import read_eos_token_ids
from nanovllm.runner.weights import INDEX_FILE, weight_files
from nanovllm.sampling_params import SamplingParams
from tests.cli.conftest import RunCommand
from tests.cli.test_damaged_files import KINDS, lines, place, small_load, words_of
from tests.cli.test_errors import assert_refused

__all__ = ["small_load"]

ENDLESS = Path("/dev/zero")
pytestmark = pytest.mark.skipif(not ENDLESS.is_char_device(), reason="there is no endless file on this system")
TOLD = "has more than 100,000 bytes"


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_reading, "MAX_BYTES", 100_000)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.is_text])
def test_a_file_without_an_end(name: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path)
    if name == "vLLM's requests":  # which must be a file
        path.write_bytes(bytes(200_000))
    else:
        path.unlink()
        path.symlink_to(ENDLESS)
    for command in KINDS[name].commands:
        outcome = run(*words_of(command, path, small_load))
        assert_refused(outcome, path)
        assert TOLD in outcome.err


@pytest.mark.parametrize("name", ["azure", "mooncake", "sharegpt", "workload", "trace"])
def test_a_line_without_an_end_in_a_packed_file(name: str, tmp_path: Path, small_load: Path, run: RunCommand) -> None:
    path = place(KINDS[name], tmp_path, ".gz")
    first = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(gzip.compress(first + bytes(200_000)))
    for command in KINDS[name].commands:
        outcome = run(*words_of(command, path, small_load))
        assert_refused(outcome, path)
        assert f"line 2 {TOLD}" in outcome.err


def test_a_compact_trace_whose_header_has_no_end(tmp_path: Path, run: RunCommand) -> None:
    path = tmp_path / "run.nvtrace"
    path.write_bytes(b"nvtrace 1\n" + bytes(200_000))
    assert_refused(run("trace", "check", path), f"{path}: cannot be read: line 2 {TOLD}")


def test_a_sweep_without_an_end(tmp_path: Path, run: RunCommand) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra sweep")
    pytest.importorskip("joblib", reason="needs the extra sweep")
    assert_refused(run("sweep", ENDLESS), f"{ENDLESS}: cannot be read: it {TOLD}")
    (tmp_path / "sweep.json").symlink_to(ENDLESS)
    assert_refused(run("sweep", "--store", tmp_path), f"sweep.json: cannot be read: it {TOLD}")
    outcome = run("sweep", "--set", f"workload={ENDLESS}")
    assert outcome.code == 1
    assert outcome.err.endswith(f"error: {ENDLESS}: cannot be read: line 1 {TOLD}\n")


def test_prompts_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=f"{ENDLESS}: cannot be read: line 1 {TOLD}"):
        read_prompts([], ENDLESS, SamplingParams())
    monkeypatch.setattr("sys.stdin", io.StringIO("a short one\n" + "x" * 200_000))
    with pytest.raises(FileError, match=f"standard input: cannot be read: line 2 {TOLD}"):
        read_prompts([], None, SamplingParams())


def test_files_of_a_model_without_an_end(tmp_path: Path) -> None:
    (tmp_path / INDEX_FILE).symlink_to(ENDLESS)
    with pytest.raises(ModelError, match=f"{INDEX_FILE}: cannot be read .it {TOLD}"):
        weight_files(tmp_path)
    (tmp_path / "generation_config.json").write_bytes(bytes(200_000))
    with pytest.raises(ModelError, match=f"generation_config.json: cannot be read .it {TOLD}"):
        read_eos_token_ids(tmp_path)


def test_what_is_as_long_as_allowed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = lines({"id": 0})
    monkeypatch.setattr(limited_reading, "MAX_BYTES", len(line))
    assert [*limited_reading.read_lines(io.BytesIO(line * 3))] == [line] * 3
    (tmp_path / "whole").write_bytes(line)
    assert limited_reading.read_whole(tmp_path / "whole") == line
