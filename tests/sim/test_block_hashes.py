"""What a router or an account takes for the content of a block is what the engine takes for it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from nanovllm.config import Config
from nanovllm.trace.events import BlocksHashed
from sim import simulate
from sim.block_hashes import block_hashes, prompt_hashes
from sim.workload import WorkloadRequest

PROMPTS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=70)


@given(PROMPTS, st.sampled_from([1, 4, 16]))
def test_hashes_are_those_of_the_block_manager(prompt: list[int], block_size: int) -> None:
    config = Config(kvcache_block_size=block_size, num_kvcache_blocks=200, max_model_len=-1)
    prompt = [token % 1000 for token in prompt]
    events = simulate(config, [WorkloadRequest(id=0, prompt=prompt, max_tokens=1)]).events
    told = [digits for event in events if isinstance(event, BlocksHashed) for digits in event.hashes]
    assert told == [f"{number:016x}" for number in block_hashes(prompt, block_size)]


@given(PROMPTS, st.integers(1, 20))
def test_a_last_block_that_is_not_full_has_a_hash_of_its_own(prompt: list[int], block_size: int) -> None:
    hashes = prompt_hashes(prompt, block_size)
    assert len(hashes) == -(-len(prompt) // block_size)
    assert hashes[: len(prompt) // block_size] == block_hashes(prompt, block_size)
