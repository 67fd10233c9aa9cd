"""The official Python clients, with creates that wait their turn.

What is particular to a generation of the client is in one adapter each for threads (``since_37``, ``until_36``) and
asyncio (``aio_since_37``, ``aio_until_36``); ``adapters`` chooses; everything else here serves any generation.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
