"""What happened: the events of a run, and everything that reads them. Start with ``events``.

write and read     ``recorder`` (a list), ``jsonl`` (files; their forms are in ``files``)
state              ``replay`` (events back into ``state``), ``timeline`` (any moment, both ways), ``by_step``
judge              ``check`` (the laws of ``state.laws``), ``diff`` (where two runs part)
measure            ``metrics``; ``observer`` (while a run goes on), ``second_process`` (beside it)
for people         ``text`` (a listing, in ``words``), ``perfetto`` (a picture over time, of ``request_lanes``)
"""
