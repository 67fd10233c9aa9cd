"""What operators may do to a gate while it runs, each with an audit line; and the token that they need for it."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
