"""What each verb does: get, list, watch, create, update, patch, delete and the subresources; and the controllers."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
