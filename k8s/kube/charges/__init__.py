"""What a manifest, or an existing object, is charged per quota resource. Pure; loads no client.

``manifests`` reads files, ``answers/fields`` the fields of one manifest: an error begins with the path of the field.
A malformed manifest raises ``FieldError``.

``footprint`` is the charge of one create; ``pods`` has the rules for pods and ``resources`` the names that quotas use.
The gate asks for it at every create, so footprints of pods are cached by shape. ``parts`` adds what controllers make of
the manifest: each kind has a maker, in ``workloads`` (Kubernetes itself and JobSet), ``operators`` (Ray, Kubeflow,
Dask) or ``spark``, that yields what one object makes, and what that makes in turn is found the same way.

``live`` is the charge of an object that exists, which may be more or less than that of its create: a resize, a
finished pod, a deletion that is overdue. ``quotas`` reads ResourceQuotas as facts for the engine.

A charge follows from the manifest alone. What the server adds before quota admission (LimitRanges, defaults, webhooks)
is not known here, and the server's own answer always wins.
"""
