"""``backoff-ctrl holders``: who holds each quota, as a page with advice and as JSON."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
