"""HTTP/1.1 as bytes: strict heads, framing, hop-by-hop headers, refusals. No sockets."""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
