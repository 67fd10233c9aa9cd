"""What the users of the bed may do, as the API server is told."""

from __future__ import annotations

from typing import Any, Final

_VERBS: Final = ["create", "get", "list", "watch", "patch", "delete"]
_GROUP: Final = "rbac.authorization.k8s.io"

ROLES: Final[tuple[dict[str, Any], ...]] = (
    {
        "metadata": {"name": "creates"},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["pods", "pods/status", "configmaps", "persistentvolumeclaims", "services"],
                "verbs": _VERBS,
            },
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _VERBS},
        ],
    },
)


def _binding(user: str, role: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }


BINDINGS: Final = (
    _binding("tester", "cluster-admin"),
    _binding("creator", "creates"),
    _binding("creator", "view"),
    _binding("learner", "creates"),
)
