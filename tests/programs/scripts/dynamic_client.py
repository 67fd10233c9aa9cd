"""The dynamic client, on the gated client in place of ``ApiClient``."""

import sys

from kubernetes import config
from kubernetes.dynamic import DynamicClient

from backoff_ctrl import GatedApiClient
from tests.programs.telling import Telling, pod_manifest

_, kubeconfig, namespace = sys.argv
config.load_kube_config(kubeconfig)
telling = Telling("kubernetes")
with GatedApiClient() as api:
    pods = DynamicClient(api).resources.get(api_version="v1", kind="Pod")
    with telling.waits():
        made = pods.create(body=pod_manifest("dynamic"), namespace=namespace)
    telling.is_in()
    telling.end(api, made.metadata.name)
