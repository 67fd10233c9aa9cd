"""The cluster: every Kubernetes and HTTP word lives in this room.

It asks the engine (``backoff_ctrl.engine``), and never ``backoff_ctrl.api``. Its seven doors, and which of them
know which, are in ARCHITECTURE.md. What only reads texts and manifests (``kube/answers``, ``kube/charges``) is pure and
loads no client; the official client is imported where it is used, late, since it costs a quarter of a second.
"""

if __name__ != "backoff_ctrl.k8s":  # one file under two names would be two ledgers: docs/decisions/import-names.md
    raise ImportError(f"import backoff_ctrl.k8s: {__name__} is only the folder it lies in", name=__name__)
