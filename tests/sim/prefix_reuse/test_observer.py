"""What becomes of repeated blocks: a case of each cause by hand, random runs of the engine against a slower look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksHashed,
    PrefixHit,
    RequestAdded,
    RequestId,
    TokensAppended,
)
from nanovllm.trace.metrics import compute_metrics
from nanovllm.trace.replay import Replay
from sim.block_hashes import prompt_hashes
from sim.prefix_reuse.observer import ReuseObserver
from tests.trace.runs import Scenario, request, scenarios

CONFIG = Config(num_kvcache_blocks=20, kvcache_block_size=4, max_num_batched_tokens=64, max_num_seqs=8)
X, Y, Z = [1] * 4, [2] * 4, [0] * 4
"""What whole blocks hold."""


def observe(
    requests: Sequence[Request], ids: Sequence[Sequence[int]] | None = None, scenario: Scenario | None = None
) -> ReuseObserver:
    scenario = Scenario(CONFIG, list(requests)) if scenario is None else scenario
    observer = ReuseObserver(scenario.config.kvcache_block_size)
    for index, item in enumerate(scenario.requests):
        observer.expect(item.request_id, item.prompt_token_ids, None if ids is None else ids[index])
    scenario.run(emit=observer.apply)
    observer.finish()
    return observer


def found(observer: ReuseObserver) -> tuple[int, int, dict[str, int], dict[str, int]]:
    return observer.num_repeats, observer.num_hits, dict(observer.misses), dict(observer.gains)


def test_what_is_repeated_is_found_but_for_the_last_block() -> None:
    first, same, longer = request("a", X + Y + [1], 1), request("b", X + Y + [1], 1, 1), request("c", X + Y, 1, 2)
    assert found(observe([first, same])) == (3, 2, {"last_partial": 1}, {})
    assert found(observe([first, longer])) == (2, 1, {"last_whole": 1}, {})


def test_what_is_computed_in_the_same_step_is_not_there_yet() -> None:
    assert found(observe([request("a", X + Y + [1], 1), request("b", X + Z + [2], 1)])) == (
        1,
        0,
        {"not_computed": 1},
        {},
    )


def test_what_was_evicted() -> None:
    config = replace(CONFIG, num_kvcache_blocks=3)
    requests = [request("a", [*X, 1], 1), request("b", Y + Z + [1], 1, 1), request("c", [*X, 2], 1, 2)]
    assert found(observe([], scenario=Scenario(config, requests))) == (1, 0, {"evicted": 1}, {})


def test_a_prompt_that_ends_within_a_block_leaves_nothing_to_reuse_of_it() -> None:
    requests = [request("a", X + [2] * 3, 1), request("b", X + Y + [0], 1, 1), request("c", X + Y + [1], 1, 2)]
    ids = [[10, 11], [10, 11, 12], [10, 11, 13]]
    assert found(observe(requests, ids)) == (4, 3, {"never_whole": 1}, {})


def test_the_same_block_behind_another_one() -> None:
    requests = [request("a", X + Y + [0], 1), request("b", Y + X + [0], 1, 1)]
    assert found(observe(requests, [[10, 11, 12], [11, 10, 13]])) == (2, 0, {"other_prefix": 2}, {})
    assert found(observe(requests)) == (0, 0, {}, {})


def test_who_is_refused_reuses_nothing_and_leaves_nothing() -> None:
    config = replace(CONFIG, num_kvcache_blocks=3)
    requests = [request("a", X + Y + Z, 2), request("b", [*X, 0], 1), request("c", X + [1] * 8, 2)]
    # a and c need a fourth block. X is a's, and so repeated by b and c.
    assert found(observe([], scenario=Scenario(config, requests))) == (2, 0, {"refused": 2}, {})


def test_who_is_aborted_before_it_runs() -> None:
    config = replace(CONFIG, max_num_seqs=1)
    requests = [request("a", [*X, 0], 5), request("b", [*X, 1], 5)]
    scenario = Scenario(config, requests, aborts_before_step={1: ["b"]})
    assert found(observe([], scenario=scenario)) == (1, 0, {"not_admitted": 1}, {})


def test_an_answer_that_comes_back_is_a_gain() -> None:
    first = request("a", [*X, 0], 8)
    answered = Scenario(CONFIG, [first]).run()
    tokens = [event.tokens[0] for event in answered if isinstance(event, TokensAppended)]
    again = request("b", [*X, 0, *tokens[:7], 1], 1, 20)
    assert found(observe([first, again])) == (1, 3, {}, {"answer": 2})


def test_a_later_one_that_is_computed_before() -> None:
    config = Config(
        num_kvcache_blocks=20, kvcache_block_size=4, max_num_seqs=1, policy="shortest_first", ageing=0, eos=-1
    )
    busy, long, short = request("o", [0], 3), request("a", X + Y + [0], 1, 1), request("b", [*X, 0], 1, 1)
    assert found(observe([], scenario=Scenario(config, [busy, long, short]))) == (
        1,
        1,
        {"not_computed": 1},
        {"later_arrival": 1},
    )


class SlowLook:
    """Replays a run, and at each admission looks at the whole cache and all prompts before."""

    def __init__(self, scenario: Scenario) -> None:
        self.block_size = scenario.config.kvcache_block_size
        self.order = {item.request_id: number for number, item in enumerate(scenario.requests)}
        self.lengths = {item.request_id: len(item.prompt_token_ids) for item in scenario.requests}
        self.hashes = {r.request_id: prompt_hashes(r.prompt_token_ids, self.block_size) for r in scenario.requests}
        self.misses: Counter[str] = Counter()
        self._replay = Replay()
        self._cached: set[str] = set()
        """As they were looked up: before an admission evicted anything."""
        self._published: set[str] = set()
        self._added: set[RequestId] = set()
        self._admitted: set[RequestId] = set()
        self._num_hits = 0

    def apply(self, event: AnyEvent) -> None:
        match event:
            case RequestAdded(request=name):
                self._added.add(name)
            case PrefixHit(blocks=blocks):
                self._num_hits = len(blocks)
            case BlocksAllocated(request=name):
                if name not in self._admitted:
                    self._admitted.add(name)
                    self._look(name)
                self._num_hits = 0
            case BlocksHashed(hashes=hashes):
                self._published.update(hashes)
        self._replay.apply(event)
        if not isinstance(event, (PrefixHit, BlockEvicted)):
            self._cached = set(self._replay.block_hashes.values())

    def _look(self, name: RequestId) -> None:
        before = [other for other in self.order if self.order[other] < self.order[name]]
        for index, content in enumerate(self.hashes[name]):
            if index >= self._num_hits and any(content in self.hashes[other] for other in before):
                self.misses[self._cause(name, index, [other for other in before if other in self._added])] += 1

    def _cause(self, name: RequestId, index: int, before: list[RequestId]) -> str:
        content = self.hashes[name][index]
        if index == len(self.hashes[name]) - 1:
            return "last_partial" if self.lengths[name] % self.block_size else "last_whole"
        assert f"{content:016x}" not in self._cached, "it could have been found"
        if f"{content:016x}" in self._published:
            return "evicted"
        return "not_computed" if any(content in self.hashes[other] for other in before) else "refused"


@given(scenarios(enable_prefix_caching=True))
@settings(max_examples=80)
def test_as_a_slow_look_shows_it(scenario: Scenario) -> None:
    observer, look, events = observe([], scenario=scenario), SlowLook(scenario), list[AnyEvent]()
    for event in scenario.run(emit=events.append):
        look.apply(event)
    told, looked = ({**misses, "refused": 0, "not_admitted": 0} for misses in (observer.misses, look.misses))
    assert +Counter(told) == +Counter(looked)
    assert observer.num_hits * look.block_size == compute_metrics(events).hit_tokens
    assert observer.num_hits == observer.num_repeats - sum(observer.misses.values()) + sum(observer.gains.values())
    everything = [content for hashes in look.hashes.values() for content in hashes]
    assert observer.num_repeats == len(everything) - len(set(everything))
