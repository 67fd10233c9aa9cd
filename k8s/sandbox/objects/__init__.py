"""What an object is: kinds and their schemas, metadata, selectors, and the store that keeps objects and their history.

Everything else builds on this room. A body becomes an object in ``schema``; ``answers`` are the errors of all rooms.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
