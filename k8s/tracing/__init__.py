"""OpenTelemetry spans of creates: from the call to its end, below the span of the caller."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
