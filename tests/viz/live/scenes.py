"""Runs of all sizes, and the screen as text."""

from __future__ import annotations

import random
from collections.abc import Iterable

from rich.cells import cell_len

from nanovllm.config import Config
from nanovllm.trace.events import AnyEvent
from tests.viz.web.traces import request, run
from viz.live.follower import Follower
from viz.live.history import History
from viz.live.player import Player
from viz.live.row import Cells
from viz.live.screen import Scene, screen_rows
from viz.live.theme import Theme


def busy_run(num_requests: int, num_blocks: int, max_steps: int | None = None) -> list[AnyEvent]:
    """All requests come at once, every other one with the same prefix; the pool is used up if it is small."""
    rng = random.Random(num_requests)
    config = Config(
        kvcache_block_size=4,
        num_kvcache_blocks=num_blocks,
        max_num_batched_tokens=64,
        max_num_seqs=16,
        max_model_len=64,
    )
    requests = []
    for index in range(num_requests):
        own = [1000 * (index + 1) + i for i in range(rng.randint(1, 20))]
        prompt = [*range(1, 9), *own] if index % 2 else own
        requests.append(request(f"r{index}", prompt, rng.randint(3, 20)))
    return run(config, requests, max_steps)


def history_of(events: Iterable[AnyEvent], max_events: int | None = None) -> History:
    history = History("run.jsonl", max_events)
    for event in events:
        history.append(event)
    return history


def paused_at(history: History, frame: int, *, is_growing: bool = False, problem: str | None = None) -> Scene:
    return Scene(history, Player(frame=frame, is_paused=True), is_growing, problem=problem)


def as_text(rows: Iterable[Cells]) -> list[str]:
    return ["".join(segment.text for segment in row) for row in rows]


def screen_text(scene: Scene, width: int = 80, height: int = 24, theme: Theme = Theme()) -> list[str]:  # noqa: B008
    """The rows of the screen, each of which fills it exactly."""
    rows = as_text(screen_rows(scene, width, height, theme))
    assert len(rows) == height
    assert {cell_len(row) for row in rows} == {width}
    return rows


def shown_state(follower: Follower) -> object:
    """All that a screen is drawn from, as plain values."""
    replay = follower.replay
    return (
        follower.frame,
        (list(replay.waiting), list(replay.running), replay.step, replay.time, dict(replay.scheduled)),
        [replay.requests[request] for request in (*replay.waiting, *replay.running)],
        (list(replay.free_blocks), list(replay.ref_counts), dict(replay.block_hashes)),
        (follower.tally, follower.activities, follower.allocated, follower.evicted, follower.landmarks),
        (follower.chunk_tokens, follower.num_decodes, follower.phase, follower.step_start_s),
        (follower.narrator.hits, follower.narrator.holds),
        [(told.step, told.sentence.text) for told in follower.told_last(64)],
    )
