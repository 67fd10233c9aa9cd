"""The laboratory. Of the product only commands load it.

``sandbox`` is an embedded API server with quota admission. It imports no module of ours, so that each proves the other.
``replay`` sends a recorded workload through competing clients, the gate among them, in virtual time or over HTTP.
"""
