"""What happened: the events of a run, and everything that reads them. Start with ``events``.

write and read     ``recorder`` (a list), ``jsonl`` (files), ``packed`` (compressed ones), ``compact`` (small ones)
state              ``replay`` (events back into state), ``timeline`` (any moment, both ways), ``by_step``
judge              ``check`` (the laws of ``laws``), ``diff`` (where two runs part)
measure            ``metrics``; ``observer`` (while a run goes on), ``second_process`` (beside it)
for people         ``text`` (a listing), ``perfetto`` (a picture over time)
"""
