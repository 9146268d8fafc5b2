"""A trace as the tables that a page draws from: the state after every step, computed by the one replayer.

A *frame* is the state right after a step, together with what happened since the frame before. Events that follow the
last finished step (a trace that was cut within a step, or requests aborted after it) make one more frame.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from nanovllm.errors import TraceError, UserError
from nanovllm.trace.events import (
    AnyEvent,
    BlockEvicted,
    BlocksAllocated,
    BlocksFreed,
    BlocksHashed,
    PrefixHit,
    StepFinished,
)
from nanovllm.trace.jsonl import Trace
from nanovllm.trace.replay import Replay
from viz.narration import Narrator
from viz.sentences import Sentence
from viz.web.block_rows import BlockRows
from viz.web.columns import pack, too_large
from viz.web.counters import Counters
from viz.web.request_rows import RequestRows
from viz.web.sentences import Sentences

WHOLE, CUT, AFTERWARDS = range(3)
"""What a frame is: a step, a step that the trace does not finish, or what came after the last step."""

_NO_ROW = -1


class Recording:
    """Follows a run event by event and gathers its tables."""

    def __init__(self, source: object) -> None:
        """``source``: where the events come from, as errors shall name it."""
        self.replay = Replay(source)
        self.requests = RequestRows()
        self.sentences = Sentences(lambda request: self.requests.by_id[request].index)
        self.narrator = Narrator(self.replay, self._hear)
        self.blocks = BlockRows(0)
        self.counters = Counters()
        self.num_frames = 0
        self._is_frame_open = False

    def feed(self, event: AnyEvent) -> None:
        """Take in the next event. Raises ``TraceError`` for one that contradicts those before it."""
        replay, frame = self.replay, self.num_frames
        replay.apply(event)
        if replay.num_events == 1:
            self.blocks = BlockRows(replay.pool.num_blocks)
            return
        self._is_frame_open = True
        self.requests.observe(event, replay, frame)
        self.narrator.tell(event)
        if isinstance(event, (PrefixHit, BlocksAllocated, BlocksFreed, BlocksHashed)):
            self.blocks.observe(event, replay, self.requests.by_id[event.request].index, frame)
        elif isinstance(event, BlockEvicted):
            self.blocks.observe(event, replay, _NO_ROW, frame)
        self.counters.observe(event, self.requests)
        if isinstance(event, StepFinished):
            self._end_frame(WHOLE)

    def _hear(self, sentence: Sentence) -> None:
        self.sentences.add(self.num_frames, sentence)

    def close(self) -> None:
        """End the last frame: what follows the last finished step. A page has at least one frame."""
        if self._is_frame_open or not self.num_frames:
            self._end_frame(CUT if self.replay.is_in_step else AFTERWARDS)

    def _end_frame(self, kind: int) -> None:
        self.requests.end_frame(self.num_frames)
        self.blocks.end_frame(self.num_frames, self.replay)
        self.counters.end_frame(kind, self.replay)
        self.num_frames += 1
        self._is_frame_open = False

    def tables(self) -> dict[str, dict[str, ArrayLike]]:
        """All columns, table by table; without what came after the last frame."""
        return {
            "frame": dict(self.counters.columns),
            "sentence": dict(self.sentences.columns()),
            **self.requests.tables(self.num_frames),
            **self.blocks.tables(self.num_frames),
        }


def record(trace: Trace) -> dict[str, Any]:
    """A run as a page takes it: names and words as they are, all numbers packed.

    A trace that contradicts itself is shown up to the step before, and ``problem`` says what is wrong. Raises
    ``TraceError`` if that is the header, ``UserError`` for numbers that are too large for a column.
    """
    recording, problem = Recording(trace.path), trace.problem
    try:
        for event in trace.events:
            recording.feed(event)
        recording.close()
    except TraceError as error:
        problem = str(error)
        if not recording.num_frames:
            recording = Recording(trace.path)
            recording.feed(trace.header)
            recording.close()
    except OverflowError:
        raise UserError(f"{trace.path}: {too_large(f'a number of event {recording.replay.num_events}')}") from None
    tables = recording.tables()
    header = trace.header
    return {
        "name": Path(trace.path).name,
        "problem": problem,
        "backend": header.backend,
        "policy": header.policy,
        "model": header.model,
        "options": header.config,
        "ids": recording.requests.ids[: recording.requests.num_rows(recording.num_frames)],
        "finish_reasons": recording.requests.finish_reasons,
        "words": recording.sentences.words(),
        "tables": pack({f"{table}.{name}": column for table in tables for name, column in tables[table].items()}),
    }
