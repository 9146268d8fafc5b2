"""Follows a run event by event: the replayed state, and what a screen shows of the step besides it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import Any, NamedTuple

from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    ChunkScheduled,
    DecodeScheduled,
    Held,
    Preempted,
    PrefixHit,
    RequestFinished,
    RequestId,
    StepFinished,
    StepStarted,
    TokensAppended,
)
from nanovllm.trace.replay import Replay
from viz import palette
from viz.narration import Narrator
from viz.sentences import Kind, Sentence

KEPT_SENTENCES = 500


class Landmark(Flag):
    """What a reader may look for in the frames of a run; ``NONE``: nothing of the kind."""

    NONE = 0
    PREEMPTION = auto()
    HIT = auto()
    CHUNK = auto()


class Tally(NamedTuple):
    """What has been counted since the start of the run."""

    time_s: float = 0.0
    generated_tokens: int = 0
    computed_tokens: int = 0
    hit_tokens: int = 0
    looked_up_tokens: int = 0
    """As ``Metrics.looked_up_tokens``: a prompt is looked up when its request is first admitted."""
    num_preemptions: int = 0
    num_finished: int = 0
    most_running: int = 0
    most_waiting: int = 0
    """Longest the queues have been at the end of a frame: the screen keeps that much room for them."""


class Told(NamedTuple):
    """A sentence, and the step that it tells of: the next one, if it happened between two steps."""

    frame: int
    step: int
    sentence: Sentence


class Follower:
    """The state of a run, frame by frame. A *frame* is a step with what came since the step before: arrivals, aborts.

    Between two frames, a follower that is given replay, hits, holds and tally of another one goes on as that one does
    (but for ``told``, which begins anew).
    """

    def __init__(
        self,
        replay: Replay,
        *,
        frame: int = -1,
        hits: Mapping[RequestId, int] | None = None,
        holds: Mapping[RequestId, str] | None = None,
        tally: Tally = Tally(),  # noqa: B008 - a constant
    ) -> None:
        self.replay = replay
        self.told: deque[Told] = deque(maxlen=KEPT_SENTENCES)
        self.narrator = Narrator(replay, self._hear, hits=hits, holds=holds)
        self.frame = frame
        """The current frame, or the last one; -1 before the first."""
        self.is_frame_open = False
        self._before = tally
        self._step = 0
        self._begin_frame()

    def _begin_frame(self) -> None:
        self.chunk_tokens = 0
        """What the step computes of prompts; a decode computes a token a request."""
        self.num_decodes = 0
        self.generated_tokens = 0
        self.phase = ""
        """Of the step, once it is finished."""
        self.step_start_s: float | None = None
        self.step_parts_s: tuple[float, float] | None = None
        """Host and device time of the step, once it is finished, if they are told."""
        self.activities: dict[RequestId, palette.Look] = {}
        """What the step does with a request, unless nothing."""
        self.allocated: set[int] = set()
        self.evicted: set[int] = set()
        self.landmarks = Landmark.NONE
        self._hit_tokens = self._looked_up_tokens = self._num_preemptions = self._num_finished = 0

    def apply(self, event: AnyEvent) -> None:
        """Take in the next event. Raises ``TraceError`` where it contradicts those before it."""
        replay = self.replay
        if not self.is_frame_open:
            self._before = self.tally
            self._begin_frame()
            self.frame += 1
            self.is_frame_open = True
        self._step = replay.step if replay.is_in_step else replay.step + 1
        replay.apply(event)
        self.narrator.tell(event)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    @property
    def tally(self) -> Tally:
        """Counts up to here."""
        before, replay = self._before, self.replay
        return Tally(
            replay.time,
            before.generated_tokens + self.generated_tokens,
            before.computed_tokens + self.chunk_tokens + self.num_decodes,
            before.hit_tokens + self._hit_tokens,
            before.looked_up_tokens + self._looked_up_tokens,
            before.num_preemptions + self._num_preemptions,
            before.num_finished + self._num_finished,
            max(before.most_running, len(replay.running)),
            max(before.most_waiting, len(replay.waiting)),
        )

    def told_last(self, num_frames: int) -> list[Told]:
        """What was said in the last frames, in order."""
        return [told for told in self.told if told.frame > self.frame - num_frames]

    def said(self, *kinds: Kind) -> list[Sentence]:
        """The sentences of these kinds in the current frame."""
        return [told.sentence for told in self.told if told.frame == self.frame and told.sentence.kind in kinds]

    def _hear(self, sentence: Sentence) -> None:
        self.told.append(Told(self.frame, self._step, sentence))

    # ---- events ------------------------------------------------------------------------------------------------------

    def _start_step(self, event: StepStarted) -> None:
        self.step_start_s = event.time

    def _hit(self, event: PrefixHit) -> None:
        self.landmarks |= Landmark.HIT

    def _allocate(self, event: BlocksAllocated) -> None:
        self.allocated.update(event.blocks)

    def _evict(self, event: BlockEvicted) -> None:
        self.evicted.add(event.block)

    def _schedule_chunk(self, event: ChunkScheduled) -> None:
        self.activities[event.request] = palette.PREFILL
        self.chunk_tokens += event.tokens
        state = self.replay.requests[event.request]
        if self.narrator.is_part(event):
            self.landmarks |= Landmark.CHUNK
        if event.start == self.narrator.hits.get(event.request, 0) and not state.num_preemptions:
            self._hit_tokens += event.start
            self._looked_up_tokens += state.num_prompt_tokens

    def _schedule_decode(self, event: DecodeScheduled) -> None:
        self.activities.update(dict.fromkeys(event.requests, palette.DECODE))
        self.num_decodes += len(event.requests)

    def _hold(self, event: Held) -> None:
        self.activities[event.request] = palette.HELD

    def _preempt(self, event: Preempted) -> None:
        self.activities[event.request] = palette.PREEMPTED
        self.landmarks |= Landmark.PREEMPTION
        self._num_preemptions += 1

    def _append_tokens(self, event: TokensAppended) -> None:
        self.generated_tokens += len(event.tokens)

    def _finish(self, event: RequestFinished) -> None:
        self._num_finished += 1

    def _finish_step(self, event: StepFinished) -> None:
        self.phase = event.phase
        self.step_parts_s = None if event.host is None or event.device is None else (event.host, event.device)
        self.is_frame_open = False


_HANDLERS: dict[type, Callable[[Follower, Any], None]] = {
    StepStarted: Follower._start_step,
    PrefixHit: Follower._hit,
    BlocksAllocated: Follower._allocate,
    BlockEvicted: Follower._evict,
    ChunkScheduled: Follower._schedule_chunk,
    DecodeScheduled: Follower._schedule_decode,
    Held: Follower._hold,
    Preempted: Follower._preempt,
    TokensAppended: Follower._append_tokens,
    RequestFinished: Follower._finish,
    StepFinished: Follower._finish_step,
}
