"""What conversations and the loops of agents have in common: prompts that grow turn by turn, each of which comes when
the one before has been answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from random import Random

from nanovllm.checks import check_whole_number
from nanovllm.errors import ConfigError
from sim.generators.arrivals import Arrival, Arrivals, at_once
from sim.generators.lengths import Length
from sim.token_ids import MAX_DRAWN_TOKENS, answer_token_ids
from sim.workload import WorkloadRequest, in_order_of_arrival


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What is said in turns. All lengths are in tokens. Raises ``ConfigError``."""

    answer_len: Length
    """What the model says in a turn."""
    system_len: int = 0
    """Tokens that all of the kind begin with: instructions, say."""
    max_prompt_len: int | None = None
    """The last turn is the one before a prompt that would be longer."""

    def __post_init__(self) -> None:
        check_whole_number("system_len", self.system_len, 0, MAX_DRAWN_TOKENS)
        if self.max_prompt_len is not None:
            check_whole_number("max_prompt_len", self.max_prompt_len, 1)


class Thread:
    """One conversation, or one agent's work, as it goes on.

    An answer is what the simulator is going to generate: known beforehand, being a function of the request's id, and
    always of the length that is asked for (``ignore_eos``).
    """

    def __init__(self, name: str, max_prompt_len: int | None, vocab_size: int) -> None:
        self.requests: list[WorkloadRequest] = []
        """In an order in which each stands behind those that it waits for."""
        self.last_id: str | None = None
        """Of the last turn; None before the first."""
        self.answer: list[int] = []
        """To the last turn."""
        self._name = name
        self._max_prompt_len = max_prompt_len
        self._vocab_size = vocab_size
        self._said: list[int] = []
        self._num_turns = 0

    def take_turn(self, new: list[int], answer_len: int, arrival: Arrival) -> str | None:
        """Say all that was said and ``new``. Returns the request's id; None: that is too long, the thread has ended."""
        prompt = self._said + new
        if self._max_prompt_len is not None and len(prompt) > self._max_prompt_len:
            return None
        request_id = f"{self._name}-{self._num_turns}"
        request = WorkloadRequest(
            id=request_id, prompt=prompt, max_tokens=answer_len, ignore_eos=True, **arrival._asdict()
        )
        self.requests.append(request)
        self.last_id = request_id
        self.answer = answer_token_ids(request_id, answer_len, self._vocab_size)
        self._said = prompt + self.answer
        self._num_turns += 1
        return request_id


def drawn_delay(rng: Random, mean_s: float) -> float:
    """Exponentially distributed; nothing is drawn where the mean is 0."""
    return rng.expovariate(1 / mean_s) if mean_s else 0.0


def in_threads(
    num_threads: int,
    kind: Turns,
    make: Callable[[int, Arrival], Iterable[WorkloadRequest]],
    arrivals: Arrivals | None,
    seed: int,
) -> list[WorkloadRequest]:
    """The requests of ``num_threads`` threads in order of arrival. ``make`` makes those of one, by its number and when
    it begins; ``arrivals`` tell that, by default all at the start."""
    arrivals = at_once() if arrivals is None else arrivals
    requests: list[WorkloadRequest] = []
    for number, start in enumerate(islice(arrivals(Random(f"arrivals {seed}")), num_threads)):
        if start.arrival is None:
            raise ConfigError("arrivals", start, "arrivals in seconds: a turn comes some time after the one before")
        requests.extend(make(number, start))
    if not requests:
        raise ConfigError("max_prompt_len", kind.max_prompt_len, "every first prompt is longer")
    return in_order_of_arrival(requests)
