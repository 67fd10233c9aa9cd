"""What people and machines see of a gate, without slowing it (looking is free).

*The table.* ``endpoints`` lists the URLs: what each takes, as a dataclass, and what it answers, as one of ``shapes``.
Two servers are made from it. A gate serves it from its own process, for this machine alone: ``server`` runs on the
runtime's loop, ``documents`` and ``gate_endpoints`` have a method for each name of the table, which run in two threads
of their own. ``backoff-ctrl serve`` (``api/status``) serves it with FastAPI for a cluster and all of its gates.

*The conversation.* ``conversation`` turns requests into typed queries and what was found into answers: ETags, 304,
problems, streams. It does no I/O. ``aiohttp_web`` and ``connections`` carry it for a gate, ``api/status/routing`` for
``serve``.

*Where the data comes from.* ``sources`` reads the ledger of a gate, in small steps. ``counters`` subscribes to it and
counts; ``decisions`` keeps the latest decisions, which ``streams`` sends to listeners. ``documents`` makes JSON of
that, ``metrics`` makes the samples that ``catalogue`` lists. ``serving`` starts all of it, once in a process.

*Requests.* ``asked`` checks who sends one, and reads the parameters in the URL, ``bodies`` a manifest in the body; an
error in them is a problem (RFC 9457) that points at the place. ``explaining`` says what would happen to a manifest;
``actions`` does what an operator wants, with the token of this gate.

*In slices.* A decision must never wait for a reader. So a request reads a page at a time, long work yields the
interpreter every half a millisecond (``slices``), and a listener that reads too slowly is dropped.
"""
