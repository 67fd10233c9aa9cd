"""Tasks as custom resources: the store is the API server, and the file of ``task run -f`` is what ``kubectl`` applies.

``schema`` writes the CustomResourceDefinition from the shapes of ``tasks/model``. ``objects`` turns a Task of the
cluster into a stored task and its status into what the cluster keeps (``conditions``), pure. ``requests`` are the
single requests about Tasks, with their errors in sentences. ``cache`` has what one informer knows, and the order of its
changes. ``store`` is the ``Store`` of these. ``owning`` makes a Task own its object: an owner reference, and a
finalizer from before the object is made until it is released.

What is surprising: a store's ``version`` is that of the status alone, although the server counts every change of the
object: who labels a Task spoils no write. And a Task that can't be run (its spec is refused, its needs form a circle,
its status was damaged) is not refused by the server: the store hands it over as one that has failed, and says why.
"""
