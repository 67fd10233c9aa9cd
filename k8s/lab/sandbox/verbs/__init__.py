"""The verbs of the sandbox: get, list, watch, create, update, patch, delete and the subresources; and the controllers.

``requests`` reads method, path and query into a value: target, verb, options. ``reading`` answers get and list,
``watching`` streams events. ``writing`` takes a create or an update through the admission chain, in the API server's
order, into the store. ``patching`` applies one of four types of patches to the stored object and writes the result like
an update: ``patches`` has JSON, merge and strategic merge patch, ``apply`` server-side apply with its field managers.
``deleting`` knows grace periods, preconditions, finalizers and propagation.

``controllers`` are not verbs. They follow the store, like the controller manager: garbage collection, the end of
namespaces, and the objects that each namespace contains.

``http/server`` makes the verbs on a ``Core``, which has the store and admission, and calls them on the sandbox's event
loop. Each call is atomic: it does not await between its first read and its last write.

What surprises: pages of a list stay consistent because later changes are undone when a page is read. A watch may see a
change a little after the answer to the request that made it. And fields are owned only in objects that were applied.
"""
