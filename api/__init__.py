"""The interfaces for people and machines: the command line, ``serve`` with its live page, the webhooks, the operator.

Rules of this room: only ``main`` wires the parts together, a command is imported when it is called, and neither the
cluster (``k8s``) nor the engine imports it.
"""

if __name__ != "backoff_ctrl.api":  # docs/decisions/import-names.md
    raise ImportError(f"import backoff_ctrl.api: {__name__} is only the folder it lies in", name=__name__)
