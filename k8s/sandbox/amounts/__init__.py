"""Quantities, resource names and the resources of a pod, implemented independently of the engine and the gate."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
