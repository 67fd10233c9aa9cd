"""Replays a real workload through several clients and compares each with references that know the quotas.

``trace`` reads the rows of a cluster trace, ``workload`` turns them into pods and quotas by one fixed recipe.
``virtual_time`` and ``admission`` simulate a cluster in virtual time; ``over_http`` uses a sandbox or a real cluster.
``clients`` create the pods, ``reference`` computes what is possible, ``figures`` prints the comparison.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
