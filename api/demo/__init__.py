"""``backoff-ctrl demo``: plain retries, Flyte 1's back-off and the gate on one workload; or the gate alone."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
