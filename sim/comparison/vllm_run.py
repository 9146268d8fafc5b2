"""Runs of vLLM as the benchmark of LLMServingSim 2.0 records them: a directory with

- ``real_requests.jsonl``: a line a request, with ``input_toks``, ``output_toks``, and the seconds at which it was
  queued (``queued_ts``) and had its first and last token (``first_token_ts``, ``last_token_ts``),
- ``workload.jsonl`` or ``workload.jsonl.gz``: the same requests, line by line, with their token ids,
- ``real_meta.json``: the engine's settings.

Source: https://github.com/casys-kaist/LLMServingSim
"""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import Annotated, Any

import msgspec

from nanovllm.checks import MAX_WHOLE_NUMBER, is_number
from nanovllm.config import Config
from nanovllm.errors import TraceError
from nanovllm.limited_reading import read_whole
from nanovllm.trace.metrics.request_metrics import RequestMetrics
from sim.comparison.real_run import RealRun
from sim.readers import read_sharegpt
from sim.readers.common import json_lines, whole_number, wrong_field
from sim.workload import WorkloadRequest

BLOCK_SIZE = 16
"""Tokens of a KV block, vLLM's default on NVIDIA cards."""


_Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_WHOLE_NUMBER)]


class _Settings(msgspec.Struct):
    max_num_seqs: _Count
    max_num_batched_tokens: _Count
    tensor_parallel_size: _Count = 1


class _Meta(msgspec.Struct):
    model: str
    vllm_version: str
    engine_kwargs: _Settings


def is_vllm_run(path: str | Path) -> bool:
    """Whether ``path`` is a directory with such a run."""
    return (Path(path) / "real_requests.jsonl").is_file()


def vllm_files(directory: str | Path) -> list[Path]:
    """The files of such a run, as far as they are there."""
    path = Path(directory)
    names = ("real_requests.jsonl", "workload.jsonl", "workload.jsonl.gz", "real_meta.json")
    return [path / name for name in names if (path / name).is_file()]


def read_vllm_run(directory: str | Path, *, num_blocks: int, block_size: int = BLOCK_SIZE) -> RealRun:
    """The run in a directory. ``num_blocks``: of the KV pool, which vLLM tells in its log and nowhere else.

    Prefix caching and working one step ahead are on, as they are by default. Raises ``TraceError`` or
    ``WorkloadError`` naming file, line, and what is wrong.
    """
    path = Path(directory)
    meta = _read_meta(path / "real_meta.json")
    packed = path / "workload.jsonl.gz"
    prompts = list(read_sharegpt(packed if packed.exists() else path / "workload.jsonl"))
    rows = _read_rows(path / "real_requests.jsonl", prompts)
    arrivals = {row.request: row.arrival_s for row in rows}
    workload = [msgspec.structs.replace(request, arrival=arrivals[request.id]) for request in prompts]
    return RealRun(
        path=path,
        requests=rows,
        workload=sorted(workload, key=lambda request: arrivals[request.id]),
        config=Config(
            policy="mixed",
            kvcache_block_size=block_size,
            num_kvcache_blocks=num_blocks,
            max_num_seqs=meta.engine_kwargs.max_num_seqs,
            max_num_batched_tokens=meta.engine_kwargs.max_num_batched_tokens,
            model=meta.model,
            tensor_parallel_size=meta.engine_kwargs.tensor_parallel_size,
        ),
        lookahead=True,
        events=[],
    )


def _read_meta(path: Path) -> _Meta:
    try:
        return msgspec.json.decode(read_whole(path).removeprefix(BOM_UTF8), type=_Meta)
    except OSError as error:
        raise TraceError.unreadable(path, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, f"is no description of a vLLM run ({error})") from None


def _read_rows(path: Path, prompts: list[WorkloadRequest]) -> list[RequestMetrics]:
    """A row a request; ids count from 0, and time from the first arrival."""
    lines = list(json_lines(path))
    if len(lines) != len(prompts):
        raise TraceError(path, f"tells of {len(lines)} requests, but the workload has {len(prompts)}")
    start_s = min(_seconds(path, line, fields, "queued_ts") for line, fields in lines)
    rows = []
    for prompt, (line, fields) in zip(prompts, lines, strict=True):
        num_prompt_tokens = whole_number(path, line, fields, "input_toks", 1)
        num_output_tokens = whole_number(path, line, fields, "output_toks", 1)
        if (num_prompt_tokens, num_output_tokens) != (prompt.num_prompt_tokens, prompt.max_tokens):
            problem = f"input_toks or output_toks is not that of request {prompt.id} of the workload"
            raise TraceError(path, problem, line)
        queued_s, first_s, last_s = (
            _seconds(path, line, fields, name) for name in ("queued_ts", "first_token_ts", "last_token_ts")
        )
        if not queued_s <= first_s <= last_s:
            raise TraceError(path, "queued_ts, first_token_ts and last_token_ts must be in this order", line)
        rows.append(
            RequestMetrics(
                request=prompt.id,
                outcome="completed",
                arrival_s=queued_s - start_s,
                prompt_tokens=num_prompt_tokens,
                output_tokens=num_output_tokens,
                hit_tokens=0,
                recomputed_tokens=0,
                num_preemptions=0,
                queueing_s=None,
                time_to_first_token_s=first_s - queued_s,
                time_per_output_token_s=(last_s - first_s) / (num_output_tokens - 1) if num_output_tokens > 1 else None,
                end_to_end_s=last_s - queued_s,
            )
        )
    return rows


def _seconds(path: Path, line: int, fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if not is_number(value) or value < 0:
        raise wrong_field(path, line, fields, name, "a number of seconds from 0 upward")
    return float(value)
