"""The runtime: the one thread of ours in a process, and what it hosts.

A program that uses the gate has threads, or an event loop, of its own; creates run there. What belongs to no single
call runs here: alarms, watches of quotas, Kubernetes events, notifications, memory. All of it is asynchronous and
hosted by one daemon thread with an event loop (``host``), which starts with the first work and is joined before Python
ends. What can only block (files, DNS, hooks that fetch credentials) has one more thread, the loop's executor. Programs
that are a gate themselves (the sidecar, ``serve``, the task manager) lend the runtime the loop that they run anyway.

``host`` also has clocks that call back (alarms): on the runtime, or on a caller's own loop, whose time may be virtual;
and the one hook for forked children, which have no thread of their parent: code with state that is wrong in a
child registers there. ``exits`` tells when Python wants to end while threads still wait. ``places`` are shared by
many, who take turns.

This room knows no creates and no quotas. Callbacks of users never run on this thread.
"""
