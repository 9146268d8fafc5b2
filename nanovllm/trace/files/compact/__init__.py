"""Traces of large runs in small files: the form behind the ending ``.nvtrace``.

A part of the file holds some thousand events. In it, the values of one field stand side by side (``columns``, in the
order of ``layout``), and what a reader can foresee from the events before is left out (``foresight``): who decodes,
which blocks come next, what they cached. ``encoding`` says of each event what is left, ``parts`` makes bytes of it,
``files`` makes files of those.
"""

from nanovllm.trace.files.compact.files import PartsForm, PartsReader

__all__ = ["PartsForm", "PartsReader"]
