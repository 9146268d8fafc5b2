"""Colours and glyphs by meaning, shared by all views: what a learner has seen in one view reads the same in another.

The colours of one group stay apart in the three common kinds of colour blindness, on a light and on a dark ground
(``tests/viz/test_palette.py`` measures it); no meaning rests on colour alone, each has a glyph too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """How one meaning is drawn.

    ``light`` and ``dark`` are ``#rrggbb`` for a light and a dark ground. ``glyph`` is one character cell wide;
    ``letter`` stands in for it where only ASCII can be shown.
    """

    name: str
    label: str
    light: str
    dark: str
    glyph: str
    letter: str


# ---- grounds ---------------------------------------------------------------------------------------------------------

GROUND = Look("ground", "background", "#FFFFFF", "#14171B", " ", " ")
INK = Look("ink", "text", "#1B1F24", "#E8EAED", " ", " ")
MUTED = Look("muted", "secondary text", "#5A636D", "#9AA4AF", " ", " ")

# ---- what a request does in a step -----------------------------------------------------------------------------------

WAITING = Look("waiting", "waiting", "#8A9199", "#7B858F", "…", "w")
HELD = Look("held", "held: looked at, not scheduled", "#BF8A00", "#F7C948", "‖", "h")
HIT = Look("hit", "prefix hit: reused from the cache", "#00704F", "#34D1A2", "◆", "H")
PREFILL = Look("prefill", "prefill: computes its prompt", "#00437A", "#2F7FD6", "▲", "P")
DECODE = Look("decode", "decode: computes one token", "#359AD5", "#93CFF5", "●", "D")
IDLE = Look("idle", "running, not scheduled", "#A3AFBA", "#5E6973", "–", "-")
PREEMPTED = Look("preempted", "preempted: gives up its blocks", "#B8321A", "#FF6A3D", "▼", "!")
FINISHED = Look("finished", "finished", "#1B1F24", "#F4F5F7", "■", "F")

ACTIVITIES = (WAITING, HELD, HIT, PREFILL, DECODE, IDLE, PREEMPTED, FINISHED)
"""What a request does, in the order of its life."""

# ---- what a reader of its answer sees of a request -------------------------------------------------------------------

STALLED = Look("stalled", "no token for long", "#C44601", "#FF7A33", "!", "s")

READING = (WAITING, DECODE, STALLED)

# ---- runs that are drawn into one picture ----------------------------------------------------------------------------

SERIES = (
    Look("first", "first", "#00437A", "#7DB8F5", "●", "1"),
    Look("second", "second", "#009E73", "#34D1A2", "▲", "2"),
    Look("third", "third", "#D55E00", "#F08C2E", "■", "3"),
)
"""In the order in which runs are told; each has a label of its own beside it."""

# ---- the tokens of a request -----------------------------------------------------------------------------------------

COMPUTED = Look("computed", "computed before", "#7F9DB8", "#5B7A96", "▪", "=")
SCHEDULED = Look("scheduled", "scheduled now", PREFILL.light, PREFILL.dark, PREFILL.glyph, PREFILL.letter)
REMAINING = Look("remaining", "still to compute", "#D5DAE0", "#3A424B", "▫", ".")
GENERATED = Look("generated", "generated", DECODE.light, DECODE.dark, DECODE.glyph, DECODE.letter)

PROGRESS = (HIT, COMPUTED, SCHEDULED, REMAINING, GENERATED)
"""The parts of a request's bar, from its first token to its last."""

# ---- KV blocks -------------------------------------------------------------------------------------------------------

FREE = Look("free", "free and empty", "#EDEFF1", "#2A2F36", "·", ".")
CACHED = Look("cached", "free, content kept for reuse", "#8CCDB4", "#1F6F58", "░", "c")
IN_USE = Look("in_use", "in use", "#2F86C9", "#4C9CDD", "█", "#")
SHARED = Look("shared", "in use by several requests", "#004F3A", "#63EBC0", "▣", "S")
ALLOCATED = Look("allocated", "just allocated", "#E0A100", "#FFD166", "+", "+")
EVICTED = Look("evicted", "just evicted: content lost, block handed out", "#B0246F", "#E46BB0", "×", "x")

BLOCKS = (FREE, CACHED, IN_USE, SHARED, ALLOCATED, EVICTED)
"""The states of a KV block: free + cached + in use + shared = all; the last two mark what this step did."""

LOOKS: dict[str, Look] = {
    look.name: look
    for look in (GROUND, INK, MUTED, *ACTIVITIES, STALLED, COMPUTED, SCHEDULED, REMAINING, GENERATED, *BLOCKS)
}
"""Every look by its name."""
