"""What people and machines ask: the command line, later the status API and its live page.

Laws of the room: ``main`` wires everything and nothing else does; a command is loaded when it is called.
Nothing imports this room.
"""

if __name__ != "backoff_ctrl.api":  # docs/decisions/import-names.md
    raise ImportError(f"import backoff_ctrl.api: {__name__} is only the folder it lies in", name=__name__)
