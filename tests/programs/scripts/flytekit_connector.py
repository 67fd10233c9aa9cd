"""A connector of flytekit for the proof: jobs that end by the clock, and a line in a file for each create and delete.

It keeps nothing: a job is its ``ResourceMeta``. ``custom`` says how long a job takes and how it ends.
"""

import asyncio
import os
import time
from dataclasses import dataclass

from flyteidl.core.execution_pb2 import TaskExecution, TaskLog
from flytekit.extend.backend.base_connector import AsyncConnectorBase, ConnectorRegistry, Resource, ResourceMeta

CALLS = os.environ["PROOF_CALLS"]


def note(call, job):
    """Write down a call."""
    file = os.open(CALLS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{call} {job}\n".encode())
    os.close(file)


@dataclass
class Job(ResourceMeta):
    """A job: its name, when it ends, and how."""

    name: str
    until: float
    end: str


class ProofConnector(AsyncConnectorBase):
    """Runs the task type ``proof``."""

    name = "Proof Connector"

    def __init__(self):
        super().__init__(task_type_name="proof", metadata_type=Job)

    async def create(self, task_template, output_prefix, inputs, task_execution_metadata, **kwargs):
        """Begin a job; its input says how long it takes."""
        execution = task_execution_metadata.task_execution_id
        attempt = execution.retry_attempt
        name = f"{execution.node_execution_id.node_id}/{attempt}"
        note("create", name)
        await asyncio.sleep(0.05)  # so that kills meet creates under way
        custom = task_template.custom
        if custom["end"] == "raise":
            raise ValueError("no such warehouse")
        end = "success" if custom["end"] == "once" and attempt > 0 else custom["end"]
        return Job(name, time.time() + inputs.literals["seconds"].scalar.primitive.integer, end)

    async def get(self, resource_meta, **kwargs):
        """Say whether it has ended, and how."""
        if time.time() < resource_meta.until:
            return Resource(phase=TaskExecution.RUNNING, message="busy")
        phase = {"user": TaskExecution.FAILED, "once": TaskExecution.RETRYABLE_FAILED}.get(
            resource_meta.end, TaskExecution.SUCCEEDED
        )
        links = [TaskLog(uri=f"http://console/{resource_meta.name}", name="console")]
        return Resource(phase=phase, message="ended", log_links=links, outputs={"job": {"name": resource_meta.name}})

    async def delete(self, resource_meta, **kwargs):
        """End it."""
        note("delete", resource_meta.name)


ConnectorRegistry.register(ProofConnector())
