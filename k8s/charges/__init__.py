"""Compute what a manifest, or an existing object, is charged per quota resource. Pure; loads no client."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
