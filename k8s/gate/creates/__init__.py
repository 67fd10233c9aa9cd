"""The life of one create, as pure code: draw a name, send, look up, wait. Events go in, actions come out.

``calls`` decides from a URL which of a client's calls are creates that a quota may refuse. ``creation`` is one create
as a value, with its caller's options and the mode of its namespace. ``naming`` draws the name before the first send and
adds the create id, the annotation by which our object is recognised later.

``conversation`` is the state machine. It asks for one action at a time (``actions``: join the line, send, look up,
pause, refresh the credentials) and takes the event that answers it, until the create returns an answer or raises an
error. ``treatments`` is its table: what to do about each lane of answers, and which outcome the engine gets.
``ungated`` is the second machine, with the same interface: creates in mode shadow or off, and those that continue after
an internal error. ``wait`` describes what a create waits for, for callbacks, errors, log lines and the status API.

This room does no I/O, reads no clock and starts no thread. ``gate.life`` drives both machines for threads, asyncio and
pools alike; ``gate/clients`` and the sidecar build the creates.

What is surprising: a 403 of a full quota may hide a 409, since quota admission answers before storage sees that the
name is taken, so a name that may exist is looked up first. A 403 for missing rights may come from an API server that
has just started, so a subject that was served before waits it out. And a ticket always has the outcome that it would
end with if the create stopped now, which is how each ticket ends exactly once.
"""
