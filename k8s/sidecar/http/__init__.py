"""Messages as bytes: heads and bodies of HTTP/1.1, and the objects in payloads.

``requests`` and ``answers`` read strictly: a message that could be read in two ways is refused, so that the proxy and
the API server always agree where it ends. ``writing`` writes the heads that are passed on, without the headers of a
single connection, and the proxy's own answers. ``messages`` has the values that all rooms share. ``transports`` lies
below: it gathers short writes, and speaks TLS on either side.

A ``payload`` stays the bytes of its creator. Its object is read beside it (``json_text``, ``yaml_text``, ``protobuf``
with its table ``charged_fields``), and a mark (a name and annotations) is written where it belongs: every other byte
stays. These modules are pure functions, which import-linter checks. A body that Kubernetes might read differently is
not read at all, and passes as it is.
"""
