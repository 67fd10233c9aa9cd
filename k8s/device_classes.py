"""Reads the device classes of a cluster that stand for an extended resource."""

from __future__ import annotations

from typing import Any, Final

from backoff_ctrl.k8s.answers.paging import EndlessListError, is_list
from backoff_ctrl.k8s.charges.devices import Classes, classes_of
from backoff_ctrl.k8s.cluster.asking import Reach
from backoff_ctrl.k8s.cluster.paths import path_to

_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
UNREAD: Final = "this account may not list deviceclasses.resource.k8s.io: ask for a role that allows list on it"


def read_device_classes(reach: Reach) -> Classes | None:
    """Return the extended resource of each device class that stands for one; None: they can't be listed.

    Empty on a server without device classes. Raises ``ReachError``.
    """
    for version in _VERSIONS:
        listed: list[Any] = []
        try:
            for status, page in reach.pages(path_to(f"/apis/resource.k8s.io/{version}", "deviceclasses")):
                reach.insist_on_credentials(status, page)
                if status == 404:
                    break
                if status != 200 or not is_list(page):
                    return None
                listed += page["items"] or []
            else:
                return classes_of(listed)
        except EndlessListError:
            return None
    return {}
