"""Airflow's ``KubernetesPodOperator`` with a hook whose client is gated; it runs its pod to the end."""

import sys
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from backoff_ctrl import GatedApiClient
from tests.programs.telling import Telling

_, kubeconfig, namespace = sys.argv
telling = Telling("apache-airflow", "apache-airflow-providers-cncf-kubernetes", "kubernetes")


class GatedHook(KubernetesHook):
    """The provider's hook; its creates wait for quota."""

    gated: GatedApiClient

    def get_conn(self) -> Any:
        self.gated = GatedApiClient(super().get_conn().configuration)
        return self.gated


class GatedPodOperator(KubernetesPodOperator):
    """The provider's operator with that hook."""

    @cached_property
    def hook(self) -> GatedHook:
        return GatedHook(conn_id=self.kubernetes_conn_id, config_file=self.config_file)

    def get_or_create_pod(self, *args: Any, **kwargs: Any) -> Any:
        with telling.waits():
            found = super().get_or_create_pod(*args, **kwargs)
        telling.is_in()
        return found


operator = GatedPodOperator(
    task_id="task",
    name="operated",
    namespace=namespace,
    image="busybox",
    config_file=kubeconfig,
    kubernetes_conn_id=None,
    get_logs=False,
    log_events_on_startup=False,
    on_finish_action="keep_pod",
    startup_check_interval_seconds=1,
    base_container_status_polling_interval=0.2,
)
pushed: dict[str, Any] = {}
ti = SimpleNamespace(
    dag_id="dag",
    task_id="task",
    run_id="run",
    try_number=1,
    map_index=-1,
    xcom_push=lambda key, value: pushed.update({key: value}),
)
context: Any = {"ti": ti, "task_instance": ti, "run_id": "run", "dag": SimpleNamespace(dag_id="dag", is_subdag=False)}
operator.execute(context)
telling.end(operator.hook.gated, pushed["pod_name"])
