"""The laws of a trace, by name, and how a broken one is raised.

``replay`` enforces those that its own state rests on, and stops at the first contradiction; ``check`` watches the
others while it replays.
"""

from __future__ import annotations

import msgspec

REPLAYED_LAWS = {
    "header": "A trace begins with its header, which says how many blocks of which size there are, and has one only.",
    "time": "Time never runs backwards.",
    "step": "Steps are numbered upward; each is finished before the next starts, and decisions are made in a step.",
    "request": "An event names a request that was added and has not ended; its id is free again after its end.",
    "queue": "A request is prefilled from waiting, or in running if it was admitted; it is decoded, preempted and "
    "given tokens in running.",
    "counts": "The counts that an event states are those that follow from the events before it, and fit into 64 bits.",
    "chunk": "A chunk starts where the cached tokens end, has at least one token and ends within the sequence.",
    "decode": "A decode computes the newest token of a sequence whose other tokens are all cached.",
    "once_a_step": "A request is scheduled at most once in a step.",
    "coverage": "The block table of a scheduled request covers the tokens that are computed.",
    "append": "A token is appended only to a sequence that was scheduled in the step and is complete.",
    "free_list": "New blocks come from the head of the free list, in its order.",
    "eviction": "Cached content is evicted from a free block, and before the block is handed out.",
    "hit": "Leading blocks are reused only if they hold content that was published.",
    "publication": "Blocks are published once, in table order, when their KV is computed.",
    "release": "Blocks are freed once, as a whole table, deepest first, right after a preemption or an end.",
}
"""Broken, they raise ``ContradictionError``."""

WATCHED_LAWS = {
    "arrival": "A request arrives after the start, and before it is handed over.",
    "conservation": "Free blocks and blocks in use are all blocks.",
    "references": "The reference count of a block is the number of tables that hold it.",
    "slots": "No more than max_num_seqs requests run.",
    "budget": "A step with a prefill computes at most max_num_batched_tokens tokens, decodes in it included.",
    "order": "Waiting requests are scheduled in the order of their queue, so a preempted one before later arrivals. "
    "Where the policy ranks them, it is the order of their ranks.",
    "victim": "It is the request at the tail of running that is preempted. Where the policy ranks them, it is the "
    "last of their ranks.",
    "hand_out": "A block is evicted only to be handed out at once.",
    "caching_off": "Without prefix caching nothing is published or hit.",
    "held": "A request is held for the reason that is stated. A policy of one's own may have others than the "
    "engine's, which are believed.",
    "progress": "A step that starts with requests computes something.",
    "phase": "The phase of a step says what was scheduled in it.",
    "watermark": "A new request that is admitted while others run leaves watermark_blocks free.",
    "max_tokens": "No request gets more than max_tokens tokens.",
    "max_model_len": "No sequence is longer than max_model_len.",
    "reason": "A request ends with a token for eos, stop or length, and for length only at max_tokens. That a token is "
    "an eos or a stop may be found out in the step after.",
    "ends": "In a complete trace every request ends.",
    "all_free": "At the end of a complete trace all blocks are free.",
}
"""Broken, they are reported by ``check``, which goes on."""

LAWS = REPLAYED_LAWS | WATCHED_LAWS

ENGINE_POLICIES = frozenset({"prefill_first", "mixed", "priority", "shortest_first"})
"""Whoever is named otherwise in a header is a policy of one's own."""

MAX_NUMBER = 2**63 - 1


class BrokenLawError(Exception):
    """A law is broken by the event in hand; ``replay`` adds where it stands."""

    def __init__(self, law: str, message: str) -> None:
        assert law in LAWS, f"there is no law named {law!r}"
        self.law = law
        super().__init__(message)


class Violation(msgspec.Struct, frozen=True):
    """A law that a trace breaks, and where. ``event``: its index (on line ``event + 1`` of a file); ``step``: -1
    before the first."""

    law: str
    step: int
    event: int
    message: str

    @property
    def place(self) -> str:
        """Where it is broken, in words."""
        return f"step {self.step}, event {self.event}"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}. {self.law}: {LAWS[self.law]}"


def require_64_bits(*numbers: object) -> None:
    """Raise ``BrokenLawError`` for a number that no engine counts to, and no table has room for."""
    for number in numbers:
        if isinstance(number, int) and number > MAX_NUMBER:
            raise BrokenLawError("counts", f"{number} is too large: numbers go up to {MAX_NUMBER}")
