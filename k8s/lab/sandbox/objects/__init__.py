"""Objects in the sandbox: kinds and their schemas, metadata, selectors, and the store with its history.

``kinds`` is the table of kinds that are served; for most, their row suffices. ``definitions`` adds those of
CustomResourceDefinitions. A body becomes an object in ``schema``, which checks its types; ``protobuf`` decodes bodies
of Go's typed clients, and its table of fields, ``protobuf_fields.txt``, has the types of the built-in kinds for both.
``metadata`` checks names and labels and sets the fields of the server. ``selectors`` chooses objects of a list or a
watch.

``store`` is the only place that changes objects. It numbers each change with one counter for all kinds, appends it to
the bounded history of the kind, which watches read, and calls its listeners at once: the quota ledger, the LimitRanges,
the controllers. It keeps objects as bytes, and every parse (``texts``) is a private copy that its reader may change.

``answers`` has the errors of all rooms, in the wording of Kubernetes: clients, and the gate above all, read them. All
other rooms of the sandbox build on this one.

What surprises: watchers see a change when the store makes it visible (``Pacing``), mostly before the answer to its
request and sometimes after, as on a real server. A version whose history is gone answers 410.
"""
