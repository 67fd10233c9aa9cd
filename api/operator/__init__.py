"""``backoff-ctrl operator``: Jobs that wait and Tasks, carried out in the cluster by one process with one ledger.

``command`` is the command line, ``replica`` what runs: the election, the two managers while it leads, and the answers
to probes and Prometheus. ``uninstall`` ends it, or a part of its work: ``stopped`` notes on the objects what it stops,
``narrowing`` says what an operator that goes on covers no longer. What is surprising: a standby has read everything,
and is ready; only the leader writes, and asks before each write whether it still leads. Without the definition of
Tasks, Jobs are let in all the same.
"""
