"""Asks connectors for their task types, all at once, and waits for the answers.

A blocking client does it: the plugin's own channels belong to the manager's event loop, and types are wanted before
there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

import grpc
from flyteidl.admin.agent_pb2 import ListAgentsRequest, ListAgentsResponse
from flyteidl.service.agent_pb2_grpc import AgentMetadataServiceStub

from .channels import opened
from .settings import Deployment, TaskType

Answer: TypeAlias = Mapping[TaskType, bool] | str | None
"""The types of a connector and whether each is synchronous; why there is no answer; None: it does not list them."""


def ask_all(deployments: Iterable[Deployment]) -> dict[str, Answer]:
    """Ask each connector; return the answers by endpoint."""
    with ExitStack() as stack:
        calls = {}
        for each in deployments:
            channel = stack.enter_context(opened(grpc, each))
            calls[each.endpoint] = AgentMetadataServiceStub(channel).ListAgents.future(
                ListAgentsRequest(), timeout=each.timeout("ListAgents")
            )
        return {endpoint: _answer(call) for endpoint, call in calls.items()}


def _answer(call: Any) -> Answer:
    try:
        return types_of(call.result())
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        return f"{error.code().name}: {' '.join(str(error.details()).split())[:300]}"


def types_of(answer: ListAgentsResponse) -> dict[TaskType, bool]:
    """Return the task types of an answer. Older connectors name types without versions."""
    found: dict[TaskType, bool] = {}
    for agent in answer.agents:
        listed = [TaskType(each.name, each.version) for each in agent.supported_task_categories]
        for each in listed or [TaskType(name) for name in agent.supported_task_types]:
            if each.name.strip():
                found[each] = agent.is_sync
    return found
