"""Who may have a kind created over HTTP: the API server's own answer about that account, group by group."""

from __future__ import annotations

import pytest

from backoff_ctrl.api.status.access import Tokens
from backoff_ctrl.k8s.kube.cluster.asking import Reach, find_place
from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.status.asked import ProblemError
from tests.cluster.control_plane.servers import Server


def test_a_task_needs_the_right_to_create_its_kind(kubernetes: Server) -> None:
    """Whoever may create pods and Jobs has no Spark application created by an account that may."""
    reach = Reach(find_place(None, str(kubernetes.kubeconfig("admin")), None, None))
    try:
        access = Tokens(reach)
        for right in (
            ("create", "pods"),
            ("create", "jobs.batch"),
            ("delete", "sparkapplications.sparkoperator.k8s.io"),
        ):
            access.may(kubernetes.token("tester"), "default", Right.on(*right))  # a cluster-admin
        for right in (("create", "pods"), ("create", "jobs.batch")):  # its role names the group of Jobs
            access.may(kubernetes.token("creator"), "default", Right.on(*right))
        sparks = "sparkapplications.sparkoperator.k8s.io"
        for user, right in (
            ("creator", ("create", sparks)),
            ("creator", ("create", "jobs")),
            ("nobody", ("create", "pods")),
        ):
            with pytest.raises(ProblemError, match=rf"{user} may not create {right[1]} in namespace default"):
                access.may(kubernetes.token(user), "default", Right.on(*right))
        with pytest.raises(ProblemError, match="does not know this token"):
            access.may("nobody-knows-this-token", "default", Right("create", "pods"))
    finally:
        reach.close()
