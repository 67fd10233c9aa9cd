"""The interfaces for people and machines: the command line, the status API of ``serve`` with its live page, the
webhook.

Rules of this room: only ``main`` wires the parts together, a command is imported when it is called, and no other room
imports this one.
"""

if __name__ != "backoff_ctrl.api":  # docs/decisions/import-names.md
    raise ImportError(f"import backoff_ctrl.api: {__name__} is only the folder it lies in", name=__name__)
