"""The injection webhook: labelled pods get the gate as a native sidecar.

``review`` reads the API server's AdmissionReview and writes the answer: a patch that ``mutation`` makes, with the
container that ``sidecar`` describes. All three are pure. ``server`` answers over TLS, and bounds what it reads;
``counting`` counts. ``certificates`` keeps the webhook's own authority in a Secret. ``command`` is ``backoff-ctrl
inject``, which serves the webhook or, with ``-f``, prints a manifest as the webhook would change it.

What surprises: the webhook never refuses a pod. One that can't have the sidecar is created without it, and its creator
gets a warning, because a faulty webhook must not keep a cluster's pods from starting.
"""
