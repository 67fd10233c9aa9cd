"""``backoff-ctrl demo``: plain retries, Flyte 1's back-off and the gate on one workload; or the gate alone.

``command`` has the options and the output: a table, a picture and the JSON document. It reads a slice of a recorded
trace, replays it with each client in virtual time, and then over HTTP on an embedded sandbox, unless ``--virtual`` is
given. With ``--gangs`` it compares gangs, in virtual time only. ``on_cluster`` runs the clients on a real cluster
instead (``--kubeconfig``), in new namespaces, and deletes these however the comparison ends. ``loop`` is
``--keep-going``: one gate on one sandbox replays slice after slice, with a live table and page.

The clients, the workload and the reference are in ``k8s/replay``; this room only chooses, runs and shows them.

What surprises: the run in virtual time comes first even for a demo over HTTP, because its length decides the speed-up
with which all clients together take about the wanted time. The command fails if a pod was lost or created twice.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
