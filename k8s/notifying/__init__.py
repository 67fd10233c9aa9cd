"""Webhook notifications (``webhooks``): who wants to be told of creates that wait or fail, and how they are told.

Off unless ``BACKOFF_CTRL_NOTIFY`` names a file of receivers. The events are CloudEvents, signed as Standard Webhooks
says; each receiver has a queue of its own on the runtime. No create waits for any of it.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
