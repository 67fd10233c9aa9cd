"""Defaults, validation and LimitRanges: what the server fills in, and what a write must pass before quota."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
