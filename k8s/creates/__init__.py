"""The life of one create, as pure code: draw a name, send, look up, wait. Events go in, actions come out."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
