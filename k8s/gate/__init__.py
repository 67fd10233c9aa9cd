"""The gate: how a create waits for its turn, is sent, and ends.

*The line.* Creates ask one ``Ledger`` for their turns: there is one per process and API server, and two would promise
the same room twice. It is the engine behind one lock (``locked_engine``), the line of those who wait (``line``),
and what others report and ask (``ledger``). The engine decides under the lock, in microseconds, by
the thread that has news for it. A wait is a ``Turn``: it gets its value under the lock, once, and the waiter is woken
when the lock is free. No code of a caller, and no call that may block, runs under the lock.

*The life.* What a create does from its beginning to its end is one generator, ``life``: follow the create ahead that
has the same idempotency key, list the quotas of a namespace that is new here, join the line, send, read the answer,
wait again or end. It yields what it needs, a call to the server or a ``Turn``, and decides what comes next; what the
server's answers mean is decided by the machine in ``creates/conversation``. It belongs to its caller: no other thread
ever steps it. Three drivers run it: ``threads.Gate`` in the thread that asked, ``aio.AsyncGate`` in the task that
asked, and ``threads.Posted`` in a client's pool, of which it holds no thread while it waits. A gang waits in the same
line with a life of its own (``gangs``); its members are creates like any other.

*The end.* A caller that goes away closes the generator, and its ``finally`` leaves the line and settles the ticket. So
a Ctrl-C, a cancelled task and a closed client all do the same in the caller's own frame. A create is sent from the step
on in which the request is handed to the transport. A caller that goes before that step leaves no trace. One that
goes after it leaves a create: on asyncio the life goes on in a task of its own until the answer comes, so that it
counts; a thread is in the request itself. Ctrl-C ends a program at once or after the request in flight;
no object is stored twice; and a create of another thread goes on by the next alarm at the latest. Where the garbage
collector or a signal handler closes a generator, its thread may hold the lock: leaving is then put on a queue, which
the holder of the lock empties.

*Errors of ours* fail open: a bug must never stop a platform. An engine that raises is replaced, in
``LockedEngine._decide`` alone: all who wait go on without it, and the new one is given what the watch reported. Any
other error of ours ends in the one guard of ``life``: the caller gets the server's answer if there is one; else the
create goes on without the engine, under the name that was drawn for it; and where that could store it twice (a key
forbids it), the error is raised. Each is counted and logged once. No other code here catches what it does not expect,
but ``attempt`` for what only helps (a log line, a subscriber).

*Who else looks.* Metrics, events, notifications, spans, the watch and the status API see a ``Create`` (its state, name,
sends, rejection, wait) and subscribe to the ledger (``subscribers``); they are called without the lock, and an error of
theirs harms no create. No other module reads the machine.

*Time and threads.* Alarms, the watch, events, notifications and memory run on the runtime (``k8s/gate/runtime``), one
thread of ours in a process; ``on_wait`` runs in the caller's thread, loop or pool, and in its context. A forked child
starts empty: it has no waiter of its parent, and the parent may have held the lock.

*After a crash* the server has what was sent, and that alone: holds, the line and gangs live in memory. An object
that was stored without an answer is found again by the id in its annotation (``creates/naming``), a key's by its name.
What was learned is read from the file of ``k8s/gate/sharing/memory``, where one is set.
"""
