"""The HTTP side of the sandbox: requests become operations on the verbs, results become answers.

``server`` takes a request through the injected faults, reads its body (``bodies``: JSON, YAML or protobuf), and calls
the verb. ``forms`` chooses the form of the answer by ``Accept``: whole objects, only metadata, or the Table of
``kubectl get``, whose columns are in ``columns``. ``special`` answers the paths that are not resources: health,
version, discovery, the part of OpenAPI that kubectl reads before it writes, reviews, and the sandbox's own controls
below ``/sandbox``.

``cluster`` starts the server on aiohttp.web, on 127.0.0.1. It asks for no credentials, since it has no users.

What surprises: answers are always JSON, even for a client that prefers protobuf. Discovery is one document per group
and version; clients that ask for the aggregated document take these instead.
"""
