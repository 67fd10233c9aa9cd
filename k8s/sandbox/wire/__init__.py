"""What the other rooms build on: JSON as Go reads and writes it, causes of a 422, counters, injected faults."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
