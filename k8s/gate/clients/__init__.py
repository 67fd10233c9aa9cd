"""How does code that uses the official Python clients wait its turn without being changed?

``GatedApiClient`` (threads, ``client``) and ``AsyncGatedApiClient`` (asyncio, ``aio_client``) are ``ApiClient``s: all
generated methods, raw calls and DynamicClients end in one method of it, which the adapter of the client's generation
overrides. There a call is looked at once (``Gating.prepared``). Is it a POST of an object to a namespaced collection?
Then it becomes a ``Create`` with a transport, and the gate runs it in the caller's own thread or task until it has an
answer or an error. Everything else passes, and its answer teaches: a quota's refusal, a deletion that makes room.

The way of a create, and the modules in the order in which it crosses them:

- ``generations`` chooses the adapter by what the installed client offers. The adapters, and how each kind of client
  sends, are in ``threads`` for threads and in ``aio_client`` for asyncio.
- ``gating`` is what all of them share: the options around a call (``waiting``), the part in a ledger, what calls mean.
- ``transport`` sends, looks up and lists through the very client, with the credentials of that moment.
- The answer becomes the client's own response, as if it had just been received; an end without an answer becomes the
  client's own exception, with a note of what the gate knows (``errors``).
- ``gangs`` is ``with gang(...)`` and ``create_gang``: several creates that are admitted as one.

What is surprising:

- *One ledger.* Two clients of one process and server share it, threads and asyncio alike, unless they are given a gate
  of their own: two ledgers would promise the same room twice. ``k8s.gate.sharing`` keeps it.
- *Options are no arguments*, since the generated methods validate theirs: they are a context variable.
- *async_req.* The client's pool has one thread. A create that waited on it would block the deletion that makes room, so
  a create runs there in steps, and holds no thread between them (``threads.PendingCreate``).
- *The gate reads each answer first*, and always asks for JSON. The caller still gets its bytes.
- *It fails open.* The client's call into our code can't be guarded at its first instruction. Behind that, an error of
  ours lets a call pass ungated (``Gating.prepared``), and never loses the answer about a stored object
  (``Gating.respond``).
- *Imports.* Only the client that is used is imported: threads load no aiohttp, and asyncio does without ``kubernetes``.
"""
