"""Random lives of requests: added, stepped, aborted at any moment, until all are gone; every law after each."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nanovllm.config import Config
from nanovllm.engine.batch import ScheduledBatch
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.policies import SCHEDULERS
from nanovllm.engine.sequence import Sequence
from nanovllm.errors import RequestError
from nanovllm.sampling_params import SamplingParams
from nanovllm.trace.events import AnyEvent, RequestAdded, RequestFinished, TokensAppended
from tests.engine.invariants import check_policy, check_scheduler
from tests.engine.test_block_manager_machine import HASH_FUNCTIONS
from tests.fakes import HashBackend, expected_completion
from tests.strategies import VOCAB_SIZE, configs, prompts, sampling_params


class SchedulerMachine(RuleBasedStateMachine):
    """Drives a scheduler on the hash backend, as the engine's loop does, with aborts in between."""

    @initialize(config=configs(), hash_name=st.sampled_from(sorted(HASH_FUNCTIONS)))
    def start(self, config: Config, hash_name: str) -> None:
        self.config = config
        self.events: list[AnyEvent] = []
        self.scheduler = SCHEDULERS[config.policy](config, emit=self.events.append)
        self.scheduler.block_manager = BlockManager(
            config.num_kvcache_blocks,
            config.kvcache_block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            hash_function=HASH_FUNCTIONS[hash_name],
            emit=self.events.append,
        )
        self.backend = HashBackend(config.num_kvcache_blocks, config.kvcache_block_size, vocab_size=VOCAB_SIZE)
        self.ended: list[tuple[Sequence, list[int]]] = []

    @rule(requests=st.lists(st.tuples(prompts(), sampling_params()), min_size=1, max_size=5))
    def add(self, requests: list[tuple[list[int], SamplingParams]]) -> None:
        for prompt, params in requests:
            self.add_one(prompt, params)

    def add_one(self, prompt: list[int], params: SamplingParams) -> None:
        seq = Sequence(prompt, params)
        needed = -(-(len(prompt) + params.max_tokens - 1) // self.config.kvcache_block_size)
        if needed <= self.config.num_kvcache_blocks:
            self.scheduler.add(seq)
            assert self.scheduler.waiting[-1] is seq
        else:
            with pytest.raises(RequestError, match=f"needs {needed} KV blocks"):
                self.scheduler.add(seq)

    @precondition(lambda self: self.scheduler.sequences)
    @rule(num_steps=st.integers(1, 12))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            if self.scheduler.sequences:
                self.one_step([])
                self.laws()

    @precondition(lambda self: self.scheduler.sequences)
    @rule(victims=st.lists(st.integers(0, 9), min_size=1, max_size=3))
    def step_with_aborts(self, victims: list[int]) -> None:
        self.one_step(victims)

    @precondition(lambda self: not self.scheduler.sequences)
    @rule()
    def idle_step(self) -> None:
        assert self.scheduler.schedule() == ([], False)

    @precondition(lambda self: self.scheduler.sequences)
    @rule(victim=st.integers(0, 9))
    def abort(self, victim: int) -> None:
        seqs = list(self.scheduler.sequences.values())
        seq = seqs[victim % len(seqs)]
        assert self.scheduler.abort(seq)
        assert not self.scheduler.abort(seq)
        self.ended.append((seq, list(seq.token_ids)))

    def one_step(self, victims: list[int]) -> None:
        """``victims`` are aborted while the backend computes."""
        batch = self.scheduler.schedule()
        self.check_batch(batch)
        token_ids = self.backend.execute(batch)
        for victim in victims:
            if self.scheduler.sequences:
                self.abort(victim)
        finished = self.scheduler.postprocess(batch.sequences, token_ids, batch.is_prefill)
        for seq in finished:
            self.check_completion(seq)
            self.ended.append((seq, list(seq.token_ids)))

    def check_batch(self, batch: ScheduledBatch) -> None:
        seqs, manager = batch.sequences, self.scheduler.block_manager
        assert seqs, "requests are there and nothing is scheduled"
        assert len({id(seq) for seq in seqs}) == len(seqs)
        assert sum(seq.num_scheduled_tokens for seq in seqs) == batch.num_tokens
        ends = [seq.num_cached_tokens + seq.num_scheduled_tokens for seq in seqs]
        if batch.is_prefill:
            assert batch.num_tokens <= self.config.max_num_batched_tokens
        assert len(seqs) <= self.config.max_num_seqs
        for index, (seq, end) in enumerate(zip(seqs, ends, strict=True)):
            assert 0 < seq.num_scheduled_tokens <= end <= seq.num_tokens
            if self.config.policy == "prefill_first":
                assert end == seq.num_tokens or index == 0, "one that is not the first of its step is chunked"
            assert batch.is_prefill or seq.num_scheduled_tokens == 1
            first_written = seq.num_cached_tokens // manager.block_size
            written = seq.block_table[first_written : (end - 1) // manager.block_size + 1]
            assert len(written) == (end - 1) // manager.block_size + 1 - first_written, "a token has no slot"
            assert all(manager.ref_counts[block] == 1 for block in written), "a shared block is written to"
            assert all(manager.contents[block] is None for block in written), "a published block is written to"

    def check_completion(self, seq: Sequence) -> None:
        ends = set(seq.sampling_params.stop_token_ids)
        if not seq.sampling_params.ignore_eos:
            ends |= self.config.eos_token_ids
        assert seq.completion_token_ids == expected_completion(
            seq.prompt_token_ids, seq.max_tokens, vocab_size=VOCAB_SIZE, end_token_ids=ends
        )

    @invariant()
    def laws(self) -> None:
        check_scheduler(self.scheduler)
        check_policy(self.scheduler)
        for seq, token_ids in self.ended:
            assert seq.token_ids == token_ids, "a token was appended after the end"
            assert (seq.block_table, seq.num_scheduled_tokens, seq.is_finished) == ([], 0, True)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        while self.scheduler.sequences:
            self.one_step([])
        self.laws()
        assert self.scheduler.block_manager.num_free_blocks == self.config.num_kvcache_blocks
        self.check_events()

    def check_events(self) -> None:
        added: list[object] = []
        open_requests: set[object] = set()
        for event in self.events:
            if isinstance(event, RequestAdded):
                added.append(event.request)
                open_requests.add(event.request)
            elif isinstance(event, RequestFinished):
                open_requests.remove(event.request)
            elif isinstance(event, TokensAppended):
                assert open_requests.issuperset(event.requests)
        assert len(set(added)) == len(added) == len(self.ended)
        assert not open_requests


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=300, stateful_step_count=30)
