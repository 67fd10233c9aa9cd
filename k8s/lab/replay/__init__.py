"""Replays a recorded workload through several clients and compares each with references that know the quotas.

``workload`` reads a cluster trace and makes pods and quotas of it, by one fixed recipe. ``clients`` has what creates
the pods (plain retries, Flyte 1's back-off, the gate) and what a run of one gives. ``virtual_time`` simulates a cluster
on a clock that jumps; ``over_http`` uses a sandbox in a process of its own, or a real cluster in the namespaces that
``rooms`` makes and deletes. Both count into one ``Record``, of which ``clients`` makes the result. ``reference``
computes what is possible, ``figures`` prints the published comparison and ``picture`` draws a run. ``gangs`` puts pods
of the workload together that compute only as a whole. ``jobs`` compares something else, Jobs with the Job controller
alone and with the operator, and ``jobs_picture`` draws it.

``backoff-ctrl demo``, ``make figures``, benchmarks and tests call it; no other part of the product does.
"""
