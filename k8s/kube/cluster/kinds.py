"""A kind of objects by its group, version and plural, and the JSON of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from backoff_ctrl.k8s.kube.paths import group_path

JSON: TypeAlias = dict[str, Any]


NAME_MAX: Final = 50
"""The longest name that the manager gives to an object, unless the plugin sets another length."""


NAME_LEAST: Final = 8
"""A plugin may not ask for names shorter than this."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a plugin watches: an API group with its version (``batch/v1``, ``v1``), the kind, and its plural."""

    api_version: str
    kind: str
    plural: str

    @property
    def resource(self) -> str:
        """``pods`` or ``jobs.batch``, as in quotas."""
        group = self.api_version.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural

    @property
    def path(self) -> str:
        """The path of its API group at the server, ``/apis/batch/v1``."""
        return group_path(self.api_version)


PODS: Final = Kind("v1", "Pod", "pods")
