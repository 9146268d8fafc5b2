"""``nanovllm workload reuse``: what a prefix cache can reuse of a workload, and what becomes of the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nanovllm.cli.console import print_json, print_line, print_table, refuse_overwriting
from nanovllm.cli.cost_model import CostModelInput, Gpu
from nanovllm.cli.help import examples
from nanovllm.cli.metrics_table import duration
from nanovllm.cli.options import takes
from nanovllm.cli.workload_input import WorkloadInput
from nanovllm.config import OPTIONS_OF_REAL_RUNS, Config
from nanovllm.errors import ConfigError

if TYPE_CHECKING:
    from sim.prefix_reuse import ReuseAccount, ReuseRun

EXAMPLES = examples(
    "nanovllm workload reuse mooncake.jsonl",
    "nanovllm workload reuse mooncake.jsonl --pool-sizes 1000,4000,16000,64000 --figure reuse.png",
    "nanovllm workload reuse talks.jsonl --kvcache-block-size 16 --policy mixed",
)
_WITHOUT = {*OPTIONS_OF_REAL_RUNS, "gpu_memory_utilization"}  # the pool is as large as it is told, or as is needed
PARTS = {"last_partial": "last", "last_whole": "last", "not_computed": "not_computed", "evicted": "evicted"}
"""Which band of the figure a cause of a miss belongs to, ``other`` if to none of these."""


@takes("config", Config, panel="Engine", defaults={"kvcache_block_size": 512}, without=_WITHOUT)
@takes("costs", CostModelInput, panel="Cost model")
@takes("reading", WorkloadInput, panel="Workload")
def reuse(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD", help="A workload file, or a public trace.")],
    gpu: Gpu = None,
    pool_sizes: Annotated[
        str | None, typer.Option(metavar="N,...", help="Simulate pools of so many blocks as well, one after the other.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw what is reused by size of the pool into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    config: Config,
    costs: CostModelInput,
    reading: WorkloadInput,
) -> None:
    """Count the blocks of prompts that repeat earlier ones, simulate, and account for each that is not reused.

    Without --num-kvcache-blocks the pool is so large that nothing is evicted. Of a Mooncake trace, hash_ids tell what
    repeats, for blocks of 512 tokens; of other workloads, tokens do. Texts longer than the model reads are not refused:
    the question is what can be reused.
    """
    from sim.prefix_reuse import account_for_reuse, reuse_by_pool

    sizes = _pool_sizes(pool_sizes)
    _check_figure(figure, sizes, workload, costs)
    run = _plan(workload, reading, config, costs, gpu)
    size = run.config.num_kvcache_blocks
    account = account_for_reuse(run, None if size == -1 else size)
    curve = list(_shown(reuse_by_pool(run, sizes), len(sizes)))
    if as_json:
        print_json({**_to_dict(account), "pools": [_to_dict(point) for point in curve]})
    else:
        _print(account)
        if curve:
            _print_curve([*curve, account])
    if figure is not None:
        _draw([*curve, account], figure)


def _pool_sizes(text: str | None) -> list[int]:
    from nanovllm.trace.state.pool import MAX_NUM_BLOCKS

    if text is None:
        return []
    words = text.split(",")
    if not all(word.isdecimal() and len(word) < 10 and 1 <= int(word) <= MAX_NUM_BLOCKS for word in words):
        allowed = f"numbers of blocks with commas between, each from 1 to {MAX_NUM_BLOCKS}"
        raise ConfigError("pool_sizes", text, allowed)
    return sorted(set(map(int, words)))


def _check_figure(figure: Path | None, sizes: list[int], workload: Path, costs: CostModelInput) -> None:
    if figure is None:
        return
    from viz.figures.plot import check_picture

    check_picture(figure)
    refuse_overwriting(figure, workload, *costs.files)
    if not sizes:
        raise ConfigError("figure", str(figure), "only with pool_sizes: it is drawn over them")


def _plan(workload: Path, reading: WorkloadInput, config: Config, costs: CostModelInput, gpu: str | None) -> ReuseRun:
    from sim.prefix_reuse import ReuseRun
    from sim.readers.mooncake import HASH_BLOCK_SIZE, read_mooncake_blocks

    read_blocks = None
    if reading.reading.format_of(workload) == "mooncake":
        if config.kvcache_block_size != HASH_BLOCK_SIZE:
            allowed = f"{HASH_BLOCK_SIZE}, the tokens that a hash id of this trace stands for"
            raise ConfigError("kvcache_block_size", config.kvcache_block_size, allowed)
        read_blocks = partial(read_mooncake_blocks, workload, reading.reading)
    config, spec, cost_model = costs.choose(config, "llama-3.1-8b")
    read = partial(reading.read, workload)
    return ReuseRun(config=config, read=read, read_blocks=read_blocks, gpu=gpu, model=spec, cost_model=cost_model)


def _shown(accounts: Iterable[ReuseAccount], number: int) -> Iterable[ReuseAccount]:
    """With a progress bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    is_shown = number > 0 and sys.stderr.isatty()
    return track(accounts, "pools", number, console=Console(stderr=True), transient=True, disable=not is_shown)


def _draw(accounts: list[ReuseAccount], path: Path) -> None:
    from viz.figures import prefix_reuse
    from viz.figures.plot import save

    pools = {account.num_blocks: _parts(account) for account in accounts}
    save(prefix_reuse(pools, accounts[0].repeat_rate), path)


def _parts(account: ReuseAccount) -> Mapping[str, float]:
    shares = {"found": account.hit_rate}
    for cause, count in account.misses.items():
        part = PARTS.get(cause, "other")
        shares[part] = shares.get(part, 0.0) + count / account.num_prompt_blocks
    return shares


def _to_dict(account: ReuseAccount) -> dict[str, Any]:
    return {**vars(account), "repeat_rate": account.repeat_rate, "hit_rate": account.hit_rate}


def _print(account: ReuseAccount) -> None:
    from rich.table import Table

    from sim.prefix_reuse import GAINS, MISSES

    table = Table("prompt blocks", "", "", "")
    for column in table.columns[1:3]:
        column.justify = "right"

    def add(name: str, count: int, sign: str = "", words: str = "") -> None:
        share = count / account.num_prompt_blocks if account.num_prompt_blocks else 0.0
        table.add_row(name, f"{sign}{count:,}", f"{sign}{share:.2%}", words)

    add("all", account.num_prompt_blocks, words=f"of {account.num_requests:,} requests")
    add("repeats", account.num_repeats, words="of a block in an earlier prompt, by content alone")
    for cause, text in MISSES.items():
        if account.misses.get(cause):
            add(cause.replace("_", " "), account.misses[cause], "–", text)
    for gain, text in GAINS.items():
        if account.gains.get(gain):
            add(gain.replace("_", " "), account.gains[gain], "+", text)
    add("found", account.num_hits, words=f"in a pool of {account.num_blocks:,} blocks")
    print_table(table)
    print_line(f"{duration(account.time_s)} of serving simulated in {duration(account.loop_time_s)}")


def _print_curve(accounts: list[ReuseAccount]) -> None:
    from rich.table import Table

    table = Table("blocks in the pool", "found", "evicted", "not computed yet", "serving takes")
    for column in table.columns:
        column.justify = "right"
    for account in accounts:
        shares = _parts(account)
        found, evicted, early = (shares.get(part, 0.0) for part in ("found", "evicted", "not_computed"))
        table.add_row(
            f"{account.num_blocks:,}", f"{found:.2%}", f"{evicted:.2%}", f"{early:.2%}", duration(account.time_s)
        )
    print_table(table)
