"""The injection webhook: labelled pods get the gate as a native sidecar.

``review`` reads the API server's question and writes the answer, a patch that ``mutation`` makes and ``sidecar``
describes; all three are pure. ``server`` answers over TLS; ``bodies`` bounds what it reads, ``counting`` counts.
``certificates`` keeps the webhook's own authority in a Secret. ``command`` is ``backoff-ctrl inject``, which serves the
webhook or, with ``-f``, prints a manifest as the webhook would change it.

What surprises: no question is ever refused. A pod that can't have the sidecar is created without it, and its creator
gets a warning, for a webhook that is wrong must not keep a cluster's pods from starting.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
