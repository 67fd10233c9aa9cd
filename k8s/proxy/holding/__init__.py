"""What the sidecar does with creates: which wait their turn, how they are sent, and what their callers are told.

``Holding`` is asked twice by a connection: ``reads`` says by the head (``choosing``) whether this is a create that a
quota may refuse, and ``answer`` answers it. Each is a ``CreateRequest``: it looks for an identical create that was
begun before, asks whether it would wait and then whether its caller may create there (``callers``), and drives the
gate, whose transport is its ``Sender`` (``sending``). ``telling`` writes what is answered when nothing was sent.

What makes it difficult is that callers give up and come again. A place in line survives its caller: whoever is told to
come again, or hangs up, finds its place by who it is and what it asks. A create that was sent before its caller left is
kept: the next identical request of that credential gets its answer instead of a second object. Who a caller is, the API
server says, never a token's unproven claims, and no credential is kept, only its digest.

An error of ours lets the create through as it came, but never a second time.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
