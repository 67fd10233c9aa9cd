"""Rules for resource names: in general, in a quota, in a container, at pod level.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go`` and ``pkg/apis/core/helper`` (1.36).
"""

from __future__ import annotations

import re

from backoff_ctrl.k8s.sandbox.storage.metadata_rules import prefix_problem

COUNTS = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
                    "replicationcontrollers", "services.nodeports", "services.loadbalancers"})  # fmt: skip
HUGE_PAGES = "hugepages-"
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_NAMES = frozenset({*COUNTS, *_COMPUTE, *(f"requests.{n}" for n in (*_COMPUTE, "storage")),
                    *(f"limits.{n}" for n in _COMPUTE)})  # fmt: skip
_LONGEST = 63
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PART = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def resource_name_problems(name: str) -> list[str]:
    """What is wrong with a resource name, wherever it is used (``validateResourceName``)."""
    problems = _qualified_problems(name)
    if not problems and "/" not in name and name != "storage" and not is_standard(name):
        problems.append("must be a standard resource type or fully qualified")
    return problems


def container_resource_problems(name: str) -> list[str]:
    """What is wrong with a resource name in a container (``validateContainerResourceName``)."""
    problems = resource_name_problems(name)
    if "/" not in name:
        if name not in _COMPUTE and not name.startswith(HUGE_PAGES):
            problems.append("must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        problems.append("doesn't follow extended resource name standard")
    return problems


def is_standard(name: str) -> bool:
    """Whether a name without a domain is one that quotas know."""
    return name in _NAMES or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def is_native(name: str) -> bool:
    """Whether a resource is one of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """Whether a name is that of an extended resource (a device), which a quota must be able to name."""
    return not is_native(name) and not name.startswith("requests.") and not _qualified_problems(f"requests.{name}")


def may_be_overcommitted(name: str) -> bool:
    """Whether the limit may exceed the request."""
    return is_native(name) and not name.startswith(HUGE_PAGES)


def _qualified_problems(name: str) -> list[str]:
    """List what is wrong with a qualified name, in the words of apimachinery's ``IsQualifiedName``."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        return [f"a valid label key {_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems = []
    if slash and (text := prefix_problem(prefix)):
        problems.append(f"prefix part {text}")
    if not last:
        problems.append("name part must be non-empty")
    elif len(last) > _LONGEST:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(last):
        problems.append(f"name part {_PART}")
    return problems
