"""The law of the trace: after every event the replayed state equals that of the live engine."""

from __future__ import annotations

from hypothesis import given, settings

from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.engine import Engine
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    DecodeScheduled,
    Held,
    Preempted,
    StepFinished,
    StepStarted,
)
from nanovllm.trace.replay import Replay
from tests.trace.runs import Scenario, scenarios

GROWTH = (BlocksAllocated, BlockEvicted, Preempted, BlocksFreed, Held)
"""Events of a decode that is being decided: the engine then holds the head of ``running`` in its hand."""


class Comparison:
    """Replays the events as they happen, and compares after each."""

    def __init__(self) -> None:
        self.replay = Replay()
        self._may_decide_decode = False

    def compare(self, engine: Engine, event: AnyEvent) -> None:
        if isinstance(event, StepStarted):
            self._may_decide_decode = True
        elif isinstance(event, (DecodeScheduled, StepFinished)):
            self._may_decide_decode = False
        self.compare_state(engine, self._may_decide_decode and isinstance(event, GROWTH))

    def compare_state(self, engine: Engine, is_in_hand: bool = False) -> None:
        self._compare_queues(engine, is_in_hand)
        self._compare_requests(engine, is_in_hand)
        self._compare_pool(engine.scheduler.block_manager)

    def _compare_queues(self, engine: Engine, is_in_hand: bool) -> None:
        live, replay = engine.scheduler, self.replay
        assert [seq.request_id for seq in live.waiting] == list(replay.waiting)
        running = [seq.request_id for seq in live.running]
        in_hand = len(replay.running) - len(running)
        assert in_hand == 0 or (is_in_hand and in_hand > 0)
        assert running == list(replay.running)[in_hand:]

    def _compare_requests(self, engine: Engine, is_in_hand: bool) -> None:
        unfinished = {name: state for name, state in self.replay.requests.items() if state.status != "finished"}
        assert unfinished.keys() == engine.scheduler.sequences.keys()
        for name, seq in engine.scheduler.sequences.items():
            state = unfinished[name]
            assert state.status == seq.status.value
            assert state.block_table == seq.block_table
            for counter in (
                "num_prompt_tokens",
                "max_tokens",
                "num_tokens",
                "num_cached_tokens",
                "num_preemptions",
                "num_published_blocks",
                "num_completion_tokens",
            ):
                assert getattr(state, counter) == getattr(seq, counter), counter
            is_undecided = is_in_hand and state.num_scheduled_tokens == 0
            assert state.num_scheduled_tokens == seq.num_scheduled_tokens or is_undecided

    def _compare_pool(self, live: BlockManager) -> None:
        replay = self.replay
        assert list(replay.free_blocks) == list(live.free_blocks)
        assert replay.ref_counts == live.ref_counts
        hashes = {block: f"{content.hash:016x}" for block, content in enumerate(live.contents) if content}
        assert replay.block_hashes == hashes
        copies = {f"{content.hash:016x}": list(content.copies) for content in live.contents if content}
        assert replay.copies == copies
        assert replay.pool.num_cached_free_blocks == sum(block in hashes for block in live.free_blocks)


@given(scenarios(lookahead=False))
@settings(max_examples=150)
def test_replayed_state_equals_the_live_one_after_every_event(scenario: Scenario) -> None:
    comparison = Comparison()
    events = scenario.run(emit=comparison.replay.apply, watch=comparison.compare)
    replay = comparison.replay
    assert replay.num_events == len(events)
    assert not replay.requests
    assert len(replay.free_blocks) == scenario.config.num_kvcache_blocks


@given(scenarios(lookahead=True))
@settings(max_examples=150)
def test_looking_ahead_replayed_state_equals_the_live_one_after_every_step(scenario: Scenario) -> None:
    """Events are held back while tokens are unknown; when a step is over, none are, and the next one is in flight."""
    comparison = Comparison()
    scenario.run(emit=comparison.replay.apply, after_step=comparison.compare_state)
    assert not comparison.replay.requests
