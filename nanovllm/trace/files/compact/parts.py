"""Parts: some thousand events as bytes, and back."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec

from nanovllm.trace.events import AnyEvent, RequestId
from nanovllm.trace.files.compact.columns import WORD, WORDS, Coding
from nanovllm.trace.files.compact.encoding import Decoder, Encoder
from nanovllm.trace.files.compact.layout import LAYOUT

MAX_PART_BYTES = 2**30
"""No part is larger, packed or not: some thousand events are a thousandth of it."""
_COMPRESSION_LEVEL = 1
"""Most bytes are hashes and tokens, of which no level makes less."""
_MISFITS = (LookupError, TypeError, ValueError, OverflowError)


class _Columns(msgspec.Struct, array_like=True, tag="columns"):
    """A part. For each form that occurs, in the order of their numbers, its columns in the order of ``LAYOUT``."""

    words: list[RequestId]
    """All that is named; columns of words hold numbers in this list."""
    forms: bytes
    """Of each event in order, a byte each. Evictions that are foreseen have none."""
    columns: list[bytes]


class _Lines(msgspec.Struct, array_like=True, tag="lines"):
    """A part whose events fit no columns (a number of more than 64 bits, say): as JSON Lines. Of the part behind it,
    nothing is foreseen by those before."""

    lines: bytes


class PartEncoder:
    """Turns the events of a run into parts: ``take`` some, as they come, until they are enough to ``encode``."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._events: list[AnyEvent] = []
        """Those of the next part, for the case that they fit no columns."""
        self._fits = True

    @property
    def num_events(self) -> int:
        """So many were taken since the last part."""
        return len(self._events)

    def take(self, events: Sequence[AnyEvent]) -> None:
        """Take in the next events of the part."""
        self._events += events
        if self._fits:
            self._fits = False  # until all of them are followed: an interrupt may come in between
            with suppress(*_MISFITS):
                self._encoder.follow(events)  # at once, while they are in the processor's cache
                self._fits = True

    def encode(self) -> bytes:
        """The part that holds these events."""
        return zlib.compress(self._pack(), _COMPRESSION_LEVEL)

    def _pack(self) -> bytes:
        events, self._events = self._events, []
        if self._fits:
            with suppress(*_MISFITS):
                return msgspec.msgpack.encode(_to_columns(*self._encoder.take_forms()))
        self._encoder, self._fits = Encoder(), True
        return msgspec.msgpack.encode(_Lines(msgspec.json.Encoder().encode_lines(events)))


def _to_columns(forms: bytes, by_form: dict[int, list[AnyEvent]]) -> _Columns:
    numbers: defaultdict[RequestId, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    columns = [
        coding.pack(_to_numbers(coding, [*map(attrgetter(field), events)], numbers))
        for form, events in by_form.items()
        if events
        for field, coding in LAYOUT[form].columns.items()
    ]
    return _Columns([*numbers], forms, columns)


def _to_numbers(coding: Coding, values: list[Any], numbers: defaultdict[RequestId, int]) -> list[Any]:
    if coding is WORD:
        return [numbers[word] for word in values]
    if coding is WORDS:
        return [[numbers[word] for word in words] for words in values]
    return values


class PartDecoder:
    """Turns parts back into events, in the order in which they were made."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._decode = msgspec.msgpack.Decoder(_Columns | _Lines).decode
        self._decode_lines = msgspec.json.Decoder(AnyEvent).decode_lines

    def decode(self, data: bytes) -> Iterator[AnyEvent]:
        """The events of a part. Raises ``ValueError`` for bytes that are none; events may have come before."""
        try:
            part = self._decode(_unpack(data))
            if isinstance(part, _Lines):
                self._decoder = Decoder()
                yield from self._decode_lines(part.lines)
            else:
                yield from self._decoder.decode(part.forms, _to_rows(part))
        except (zlib.error, msgspec.MsgspecError, LookupError, TypeError, RuntimeError) as error:
            raise ValueError(str(error)) from None


def _unpack(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    unpacked = inflater.decompress(data, MAX_PART_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("a part of another length than it tells")
    return unpacked


def _to_rows(part: _Columns) -> dict[int, Iterator[tuple[Any, ...]]]:
    counts = Counter(part.forms)
    if unknown := counts.keys() - LAYOUT.keys():
        raise ValueError(f"there is no form {min(unknown)}")
    if len(part.columns) != sum(len(LAYOUT[form].columns) for form in counts):
        raise ValueError(f"{len(part.columns)} columns, which are not those of its forms")
    columns = iter(part.columns)
    rows: dict[int, Iterator[tuple[Any, ...]]] = {}
    for form, count in sorted(counts.items()):
        codings = LAYOUT[form].columns.values()
        values = [_to_words(coding, coding.unpack(next(columns)), part.words) for coding in codings]
        if any(len(column) != count for column in values):
            raise ValueError(f"a column that has not a value for each of the {count} events of form {form}")
        rows[form] = zip(*values, strict=True) if values else repeat(())
    return rows


def _to_words(coding: Coding, values: list[Any], words: list[RequestId]) -> list[Any]:
    try:
        if coding is WORD:
            return [words[number] for number in values]
        if coding is WORDS:
            return [[words[number] for number in numbers] for numbers in values]
    except IndexError:
        raise ValueError(f"a number that is none of its {len(words)} words") from None
    return values
