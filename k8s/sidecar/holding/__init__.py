"""What the sidecar does with creates: which wait their turn, how they are sent, and what their callers get.

A connection calls ``Holding`` twice: ``reads`` decides by the head (``choosing``) whether this is a create that a quota
may refuse, and ``answer`` answers it. Each is a ``CreateRequest``: it looks for an identical create that began before,
asks whether it would wait and then whether its caller may create there (``callers``), and drives the gate, whose
transport is its ``Sender`` (``sending``). ``telling`` writes the answers to creates that were not sent.

The difficulty is that callers give up and come again. A place in line survives its caller: one that is asked to come
again, or hangs up, finds its place by its identity and its request. A create that was sent before its caller left is
kept: the next identical request with that credential gets its answer instead of a second object. The API server says
who a caller is, never the unproven claims of a token, and only the digest of a credential is kept.

After an internal error a create is sent as it came, but never a second time.
"""
