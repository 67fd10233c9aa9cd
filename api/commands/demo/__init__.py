"""``backoff-ctrl demo``: the same workload through plain retries, Flyte's back-off and the gate.

``command`` reads the options and prints. ``loop`` keeps a workload going, ``cluster`` runs it on a cluster, ``jobs``
compares the Job controller with the operator, ``output`` writes the pictures.
"""
