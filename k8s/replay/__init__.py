"""Replay a real workload through several clients, and measure each against references that know the quota.

``trace`` reads rows, ``workload`` is the one fixed recipe that makes pods and quotas of them, ``virtual_time``
and ``admission`` are the cluster that needs no wall time, ``clients`` ask it for room, ``reference`` knows the
answer, ``figures`` prints who did how well.
"""
