"""The admission webhooks: labelled pods get the gate as a native sidecar, labelled Jobs wait, Tasks are judged.

``review`` reads the API server's AdmissionReview and writes the answer: a patch that ``mutation`` makes, with the
container that ``sidecar`` describes. All three are pure. ``server`` answers over TLS, and bounds what it reads;
``counting`` counts. ``certificates`` keeps the webhook's own authority in a Secret. ``command`` is ``backoff-ctrl
inject``, which serves the webhook or, with ``-f``, prints a manifest as the webhook would change it.

Two more belong to the operator. ``suspending`` suspends new Jobs and the like, pure; ``task_review`` asks whether the
author of a Task may have that done, and keeps its spec as it was.

What surprises: the webhooks never refuse a pod or a Job. One that can't have the sidecar, or may not be suspended, is
created as it is, and its creator gets a warning, because a faulty webhook must not keep a cluster's work from starting.
A Task is refused when in doubt, because the operator that carries it out may do more than its author.
"""
