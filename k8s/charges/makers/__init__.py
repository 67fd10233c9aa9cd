"""Which objects a controller or an operator makes out of a manifest, kind by kind, read from its sources. Pure."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
