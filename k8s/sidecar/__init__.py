"""The sidecar: bytes in, bytes out; creates go through the gate, everything else passes untouched.

``serving`` is the life of the process that ``backoff-ctrl proxy`` starts: it binds (``listening``), finds the API
server (``upstream``), opens the room of held creates (``holding``), answers probes (``probes``), and ends by handing
back what is held while the rest drains. All of it runs on one event loop.

A creator's connection is a ``Caller``. It reads requests one after the other and begins each as one of two
(``passing``): a ``Passage`` sends head and body on as they come, and the answer, or a tunnel (exec, port-forward),
back; a ``Held`` reads a short body whole and asks the room of held creates for the answer. Either slows its writer down
where its reader is slow. Messages are read and written in ``http``, which knows no sockets but for its transports.

What surprises: a request that was passed is never sent twice, except a read on a kept connection that proves to be
closed. After an internal error requests pass ungated. Where the proxy lends its own credentials, it refuses requests
that a web page could have sent, and exec and attach. In TLS mode the proxy takes the place of the API server: with an
``authority`` of its own, or with ``certificates`` that others renew.
"""
