"""Conversations: each turn's prompt is all that was said before, answers included, and something new."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from nanovllm.checks import check_seconds, check_whole_number
from sim.generators.arrivals import Arrival, Arrivals
from sim.generators.lengths import Length
from sim.generators.turns import Thread, Turns, drawn_delay, in_threads
from sim.token_ids import DEFAULT_VOCAB_SIZE, draw_token_ids, own_token_ids, prefix_token_ids
from sim.workload import WorkloadRequest


@dataclass(frozen=True, kw_only=True)
class Conversation(Turns):
    """What conversations look like. Raises ``ConfigError``."""

    num_turns: Length
    message_len: Length
    """What a user says in a turn."""
    mean_think_s: float
    """From the end of an answer to the next turn, exponentially distributed; 0 for no time at all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds("mean_think_s", self.mean_think_s)


def sessions(
    num_sessions: int,
    conversation: Conversation,
    *,
    arrivals: Arrivals | None = None,
    seed: int = 0,
    vocab_size: int = DEFAULT_VOCAB_SIZE,
) -> list[WorkloadRequest]:
    """The turns of ``num_sessions`` conversations in order of arrival, with ids such as ``3-0``, ``3-1``. Each comes
    when the one before has been answered and the user has thought about it.

    ``arrivals``: when conversations begin, by default all at the start. An answer is what the simulator is going to
    generate. So a prefix cache finds prompt and answer of the turn before; on a real engine, which answers otherwise,
    it finds the prompt. ``vocab_size``: the model's, where it is below ``DEFAULT_VOCAB_SIZE``.
    """
    check_whole_number("num_sessions", num_sessions, 1)

    def make(number: int, start: Arrival) -> list[WorkloadRequest]:
        return _turns(conversation, number, start, seed, vocab_size)

    return in_threads(num_sessions, conversation, make, arrivals, seed)


def _turns(
    conversation: Conversation, number: int, start: Arrival, seed: int, vocab_size: int
) -> list[WorkloadRequest]:
    rng = Random(f"session {number} {seed}")
    thread = Thread(str(number), conversation.max_prompt_len, vocab_size)
    arrival = start
    for turn in range(conversation.num_turns(rng)):
        message_len, answer_len = conversation.message_len(rng), conversation.answer_len(rng)
        if turn == 0:
            system = prefix_token_ids("system", conversation.system_len, seed, vocab_size)
            message = system + own_token_ids(number, message_len, seed, vocab_size)
        else:
            message = draw_token_ids(f"message {seed} {number} {turn}", message_len, vocab_size)
        request_id = thread.take_turn(message, answer_len, arrival)
        if request_id is None:
            break
        arrival = Arrival(after=(request_id,), delay=drawn_delay(rng, conversation.mean_think_s))
    return thread.requests
