"""The small workloads that break schedulers, as data: who arrives when, into which engine.

Each is a fault that users of a serving engine or a simulator reported, reduced to a few tokens. The tests beside
this file say what must come out; a scenario can be run again with other options to see a rule at work.
"""

from __future__ import annotations

from dataclasses import dataclass

from nanovllm.config import Config
from nanovllm.engine.request import Request
from nanovllm.sampling_params import SamplingParams
from tests.engine.runs import Run, run_to_end

Line = tuple[int | list[int], int, int]
"""A request: its prompt (or the length of one that no other request shares), ``max_tokens``, arrival step."""


@dataclass(frozen=True)
class Scenario:
    """A workload and the engine it meets. ``reported``: where the fault was seen."""

    number: int
    title: str
    reported: str
    lines: tuple[Line, ...]
    block_size: int = 4
    num_blocks: int = 64
    max_num_batched_tokens: int = 64
    max_num_seqs: int = 8

    @property
    def requests(self) -> list[Request]:
        """The requests, numbered from 0; none of them stops at an end-of-sequence token."""
        return [
            Request(
                request_id=index,
                prompt_token_ids=own_tokens(index, prompt) if isinstance(prompt, int) else prompt,
                sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
                arrival_step=arrival_step,
            )
            for index, (prompt, max_tokens, arrival_step) in enumerate(self.lines)
        ]

    def config(self, **options: object) -> Config:
        """The engine's options; ``options`` replace or complete the scenario's own."""
        own = {
            "kvcache_block_size": self.block_size,
            "num_kvcache_blocks": self.num_blocks,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_num_seqs": self.max_num_seqs,
        }
        return Config.from_options(**{**own, **options})

    def run(self, **options: object) -> Run:
        """Run it to the end; ``options`` as in ``config``."""
        return run_to_end(self.config(**options), self.requests)


def own_tokens(owner: int, length: int) -> list[int]:
    """Tokens that nobody else's prompt has."""
    return [1000 * (owner + 1) + position for position in range(length)]


def shared_tokens(length: int) -> list[int]:
    """The prefix called X."""
    return list(range(1, length + 1))


X4, X8, X12 = shared_tokens(4), shared_tokens(8), shared_tokens(12)

# ---- liveness and limits -----------------------------------------------------------------------------------------

OVERSIZED_HEAD = Scenario(1, "Oversized head", "vLLM 39734, nano-vLLM 274", ((16, 1, 0), (2, 1, 0)), num_blocks=3)
OUTPUT_TOO_LONG = Scenario(2, "Prompt fits, output can't", "nano-vLLM 274, 277", ((8, 4, 0),), num_blocks=2)
OUTPUT_JUST_FITS = Scenario(2, "Exactly fitting", "nano-vLLM 274, 277", ((5, 4, 0),), num_blocks=2)
OUTPUT_ONE_TOO_LONG = Scenario(2, "One token too many", "nano-vLLM 274, 277", ((5, 5, 0),), num_blocks=2)
NO_SLOT = Scenario(3, "No slot", "nano-vLLM 271", ((4, 6, 0), (4, 6, 0), (4, 3, 1)), max_num_seqs=2)
ONE_VICTIM = Scenario(
    4,
    "One victim, three times",
    "vLLM 44594",
    ((2, 9, 0), (3, 7, 0), (8, 2, 0), (4, 10, 0)),
    num_blocks=5,
)
ORDER_OF_THE_PREEMPTED = Scenario(
    5, "Order of the preempted", "vLLM 41951", ((8, 9, 0), (8, 9, 0), (8, 9, 0), (4, 1, 2)), num_blocks=6
)
NOTHING_LEFT = Scenario(6, "Nothing left to schedule", "VoxCPM 37", ((4, 8, 0),))
BLOCK_SIZE_ONE = Scenario(8, "Block size 1", "never reported", ((3, 5, 0),), block_size=1, num_blocks=16)
PREFILL_STARVES_DECODE = Scenario(
    10,
    "Prefill starves decode",
    "nano-vLLM 73, SGLang 32549",
    ((4, 4, 0), *((8, 4, step) for step in range(1, 13))),
    max_num_batched_tokens=8,
    max_num_seqs=4,
)
BUDGET_BEHIND_THE_HEAD = Scenario(
    11, "Budget wasted behind the head", "", ((6, 1, 0), (7, 1, 0), (2, 1, 0)), max_num_batched_tokens=8
)
NEXT_CHUNK_ONLY = Scenario(
    12,
    "Admission by next chunk only",
    "vLLM 25538, 21793",
    ((2, 16, 3), (16, 3, 3)),
    num_blocks=6,
    max_num_batched_tokens=8,
)
LONG_PROMPT = Scenario(
    13,
    "Long prompt hogs the budget",
    "vLLM 15419, 57951",
    ((40, 1, 0), (2, 1, 1)),
    max_num_batched_tokens=8,
)

# ---- prefix cache and block accounting ---------------------------------------------------------------------------

FAILED_ADMISSION = Scenario(
    14,
    "Failed admission leaks nothing",
    "vLLM 11565, 43736",
    ((X8 + own_tokens(0, 1), 4, 0), (X8 + own_tokens(1, 13), 2, 1)),
    num_blocks=6,
)
FREE_HITS_ARE_CHARGED = Scenario(
    15,
    "Free hits are charged",
    "ATOM 902",
    ((X8 + own_tokens(0, 1), 1, 0), (5, 10, 1), (X8 + own_tokens(2, 9), 2, 2)),
    num_blocks=6,
)
HITS_CLAIMED_FIRST = Scenario(
    16,
    "Hits are claimed before new blocks are taken",
    "vLLM 10507",
    ((X8 + own_tokens(0, 1), 1, 0), (8, 1, 1), (X8 + own_tokens(2, 5), 1, 2)),
    num_blocks=4,
)
FULLY_CACHED_PROMPT = Scenario(
    17,
    "Fully cached prompt",
    "nano-vLLM 199, vLLM 9972",
    ((X8, 1, 0), (X8, 1, 1), (X8 + own_tokens(2, 1), 1, 2)),
    num_blocks=8,
)
SAME_STEP_SAME_PREFIX = Scenario(
    18,
    "Same step, same prefix",
    "nano-vLLM 219",
    (([*X4, 50], 8, 0), ([*X4, 51], 1, 0), (9, 1, 2), ([*X4, 52], 1, 3)),
    num_blocks=6,
)
SAME_STEP_COPY_EVICTED = Scenario(
    18,
    "Same step, same prefix, the copy published last evicted",
    "nano-vLLM 219",
    (([*X4, 50], 8, 0), ([*X4, 51], 1, 0), (13, 1, 2), ([*X4, 52], 1, 3)),
    num_blocks=6,
)
NOT_YET_COMPUTED = Scenario(
    19,
    "Not shareable before computed",
    "nano-vLLM 208, SGLang 38319",
    ((X12, 2, 0), (X12 + own_tokens(1, 1), 1, 1)),
    max_num_batched_tokens=4,
)
STALE_HASH = Scenario(
    20, "Recycled block, stale hash", "nano-vLLM 163", ((X4, 1, 0), (8, 1, 1), (X4, 1, 2)), num_blocks=2
)
STALE_HASH_LONGER = Scenario(
    20,
    "Recycled block, stale hash, and a prompt that could hit it",
    "nano-vLLM 163",
    ((X4, 1, 0), (8, 1, 1), (X4 + own_tokens(2, 1), 1, 2)),
    num_blocks=2,
)
DEEPEST_FIRST = Scenario(
    21,
    "Deepest block first",
    "llm-d-inference-sim 704",
    ((X12, 1, 0), (8, 1, 1), (X12 + own_tokens(2, 1), 1, 2)),
    num_blocks=4,
)
STRADDLING_CHUNKS = Scenario(
    22, "Chunks that straddle blocks", "", ((10, 2, 0),), num_blocks=4, max_num_batched_tokens=3
)
RESUMPTION_LENGTH = Scenario(23, "Resumption length", "SGLang 7434, 39645", ((5, 9, 0), (4, 10, 0)), num_blocks=4)
HASH_COLLISION = Scenario(
    24,
    "Hash collision",
    "",
    (
        ([*X4, 50, 51, 52, 53, 54], 2, 0),
        ([9, 9, 9, 9, 50, 51, 52, 53, 54], 2, 1),
        ([*X4, 50, 51, 52, 53, 60], 2, 2),
    ),
)
RANDOM_PROMPTS_UNDER_PRESSURE = Scenario(
    26,
    "Hit rate under pressure",
    "vLLM 25787",
    tuple((length, 12, step) for step, length in enumerate((6, 9, 3, 8, 5, 7, 4, 10))),
    num_blocks=12,
)
