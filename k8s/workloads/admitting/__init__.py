"""Admitting: suspended Jobs and their like wait for plain quota as one, are let in whole, and keep their room.

Kubernetes' own controllers create most pods of a cluster, and no gate sees those creates. But a suspended Job makes no
pods: it can wait in the line of the gate as a gang of the pods that it would make, and be resumed once all of them fit.

``kinds`` are the admissible kinds as data, the words on objects, one object as it was read (``Subject``), and which
objects are left alone; the webhook that suspends at CREATE asks it, too. ``described`` adds kinds whose operator a file
describes. ``life`` is the table: the states of one object, and what each thing that is seen of it leads to. A ``case``
is one object: it carries out what the table says, with what all share (``desk``); what is reserved for it is its
``room``. ``shape`` says what is kept of an object, ``stubs`` what is kept of one that is too large. ``again`` is about
what is suspended again although it was let in. ``stages`` says what a JobSet makes at its peak, ``asking`` what any
object makes and what is asked of the line for it; ``needs`` is what one object still needs of that, ``children`` what
controllers have made already beside pods, ``patches`` what is written on it, ``surroundings`` what else counts
(LimitRanges, PriorityClasses, who stands above it), and ``telling`` tells people what it waits for. ``admitting``
follows all objects of all kinds, and leads. ``jobs`` lists and releases without any of that, through the API server
alone.

What is surprising:

- All state is stored on the objects themselves. The next leader reads them: what is suspended waits again, in the
  order of creation; what runs has its room at once, as a standing gang, and the pods that live are adopted.
- The room of what runs stays its own: a pod that ends makes way for the next one of its Job (``keeps`` in the engine).
  It shrinks at the events of pods that have succeeded, since the status of a Job comes a second later.
- The room of what pods bring, and of what controllers make beside them, is kept by what exists: a child that is seen is
  charged, one that is gone returns its room. What was made before the object was let in is not reserved for it.
- A Job that is suspended after it was let in waits again: usually an older file was applied. A user who means it sets
  ``stay-suspended``. Where a tool does it each time, letting in would end pods for ever, and the Job stays suspended.
- What is written on an object may be a copy from another one: ``admitted`` counts with the object's own uid.
- It fails open: an error of ours lets objects in, counted as ungated.
"""
