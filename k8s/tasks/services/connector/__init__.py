"""The plugin ``connector``: tasks that a connector of Flyte runs, by Flyte's own protocol over gRPC.

A connector is a server that Flyte's users write with flytekit, or take from its plugins: BigQuery, Databricks,
Snowflake, webhooks, one of their own. It says which task types it serves (``ListAgents``), accepts a task
(``CreateTask``), tells what became of it (``GetTask``) and ends it (``DeleteTask``); a synchronous one does it in one
call (``ExecuteTaskSync``). In flyteidl the services still carry the older name, agent.

``settings`` says where connectors are, with Flyte's keys. ``directory`` asks each for its task types, at the start and
again every minute, and keeps what is known while one is down. ``requests`` makes Flyte's messages of a task;
``literals`` turns plain JSON into Flyte's typed values and back; ``answers`` says what a connector's answer means for
the task; ``plugin`` makes the calls. All but ``settings`` and ``directory`` load grpcio and flyteidl, the extra
``connector``, so they are imported at the first task.

*Surprising.* A task type that no plugin serves may be one of a connector that has not answered yet: such a task waits.
A connector has no key by which it could recognise a repeated create; after a kill a task may be created twice.
"""

import os

# gRPC reads it when it is imported. Else its core writes to stderr, amid our lines, that a connector has gone.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # noqa: TID251 - no setting of ours
