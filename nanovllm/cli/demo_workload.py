"""What the demo runs: four questions, and options so tight that the scheduler has to decide something."""

from __future__ import annotations

from typing import NamedTuple

from nanovllm.config import Config
from nanovllm.sampling_params import SamplingParams

CONFIG = Config(
    model="smollm2-135m",
    device="cpu",
    kvcache_block_size=16,
    num_kvcache_blocks=27,
    max_num_batched_tokens=64,
    max_num_seqs=4,
    max_model_len=512,
    num_threads=1,
)
"""A long prompt does not fit into one step, and four answers do not fit into the pool. One thread is fast enough, does
not mind what else the machine does, and adds up in the same order everywhere."""

SAMPLING = SamplingParams(temperature=0.0, max_tokens=100)

DOCTOR = (
    "You are a kind doctor. You answer the questions of your patients in short, clear and friendly sentences that "
    "everyone understands."
)
ARTICLE = (
    "Yesterday the town of Brookfield opened its new library. It stands next to the old mill, has three floors and "
    "room for eighty thousand books. The mayor, Anna Lindqvist, cut the ribbon at ten in the morning while the school "
    "band played. Children may borrow books for four weeks without paying anything, and on Saturdays there will be "
    "readings, a chess club and a workshop where one can learn to repair bicycles. The building cost nine million and "
    "was paid for mostly by the citizens themselves, who collected money for six years. On its roof are solar panels "
    'and a garden with a view over the river. "We wanted a living room for the whole town," said the architect. By the '
    "evening more than two thousand visitors had come, and the first book to be lent out was a book about whales."
)


class Question(NamedTuple):
    """A conversation of one question. ``arrival_step``: it is handed over before this step of the engine."""

    name: str
    system: str
    text: str
    arrival_step: int

    @property
    def shown(self) -> str:
        """The question proper, without the article that it is about."""
        return self.text.rpartition("\n")[2]

    @property
    def messages(self) -> list[dict[str, str]]:
        """As a chat template takes it."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.text}]


QUESTIONS = (
    Question(
        "library",
        "You write summaries of newspaper articles.",
        f"{ARTICLE}\n\nSummarize this article in two sentences.",
        0,
    ),
    Question("water", DOCTOR, "Why is it good to drink enough water?", 1),
    Question("sleep", DOCTOR, "Give me three tips for a good night's sleep.", 6),
    Question(
        "program",
        "You are a friendly assistant in a public library. You answer the questions of visitors in short, clear and "
        "complete sentences.",
        "Explain what a computer program is.",
        8,
    ),
)
"""The article is longer than a step's budget, and the two questions to the doctor begin alike."""
