"""Messages as bytes: heads and bodies of HTTP/1.1, and what payloads say.

``requests`` and ``answers`` read, strictly: what could be read in two ways is refused, so that the proxy and the API
server never take one message for two. ``writing`` writes heads as they go on, without what concerns one connection
only, and what the proxy says itself. ``messages`` has the values that all rooms share. ``transports`` lies below: it
gathers short writes, and speaks TLS on either side.

A ``payload`` stays the bytes of its creator. What it says is read beside it (``json_text``, ``yaml_text``, ``protobuf``
with its table ``charged_fields``), and a mark (a name and annotations) is written where it belongs: every other byte
stays. These modules are pure functions; import-linter keeps it so. What Kubernetes might read otherwise than we do is
not read at all, and passes as it is.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
