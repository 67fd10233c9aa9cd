"""Certificates: an authority for as long as the pod lives, leaves that rotate, and the creator's account directory."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
