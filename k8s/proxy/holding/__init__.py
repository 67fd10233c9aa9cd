"""What the sidecar does with creates: which wait their turn, how they are sent, and what their callers are told."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
