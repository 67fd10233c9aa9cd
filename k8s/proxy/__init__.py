"""The sidecar: bytes in, bytes out; creates go through the gate, everything else passes untouched."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
