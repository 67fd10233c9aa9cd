"""Airflow's ``PodManager``, given a gated client."""

import sys

from airflow.providers.cncf.kubernetes.utils.pod_manager import PodManager
from kubernetes import client, config

from backoff_ctrl import GatedApiClient
from tests.programs.telling import Telling

_, kubeconfig, namespace = sys.argv
config.load_kube_config(kubeconfig)
telling = Telling("apache-airflow", "apache-airflow-providers-cncf-kubernetes", "kubernetes")
spec = client.V1PodSpec(containers=[client.V1Container(name="base", image="busybox")])
pod = client.V1Pod(metadata=client.V1ObjectMeta(name="managed", namespace=namespace), spec=spec)
with GatedApiClient() as api:
    manager = PodManager(kube_client=client.CoreV1Api(api))
    with telling.waits():
        made = manager.create_pod(pod)
    telling.is_in()
    telling.end(api, made.metadata.name)
