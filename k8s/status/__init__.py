"""What people and machines see of a gate, without slowing it (law 21).

*The table.* ``endpoints`` lists the URLs: what each takes, as a dataclass, and what it answers, as one of ``shapes``.
Two servers go by it. A gate serves it from its own process, for this machine alone: ``server`` is aiohttp.web on the
runtime's loop, ``gate_endpoints`` has a method for each name of the table, and documents are made in two threads of
their own. ``backoff-ctrl serve`` (``api/status``) serves it with FastAPI for a cluster and all of its gates.

*Where it comes from.* ``sources`` asks the ledger of a gate, in small questions. ``counters`` subscribes to it and
counts; ``decisions`` keeps the latest, which ``streams`` sends to those who listen. ``documents`` makes JSON of that,
``metrics`` makes samples, by the list in ``catalogue``. ``serving`` starts all of it, once in a process.

*Questions.* ``asked`` reads what came in the URL, ``bodies`` a manifest in the body; a wrong one is a problem (RFC
9457) that points at the place. ``explaining`` says what would happen to a manifest, ``actions`` does what an operator
wants, with the token of this gate.

*Slowly, in slices.* Who decides must never wait for those who look. So a look asks for a page at a time, work that
takes long gives the interpreter away every 0.4 ms (``slices``), and a listener that takes too little is dropped.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
