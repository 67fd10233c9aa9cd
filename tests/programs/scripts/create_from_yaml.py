"""``kubernetes.utils.create_from_yaml``, with the gated client in place of ``ApiClient``."""

import sys

from kubernetes import config, utils

from backoff_ctrl import GatedApiClient
from tests.programs.telling import Telling, pod_manifest

_, kubeconfig, namespace = sys.argv
config.load_kube_config(kubeconfig)
telling = Telling("kubernetes")
with GatedApiClient() as api:
    with telling.waits():
        ((made,),) = utils.create_from_yaml(api, yaml_objects=[pod_manifest("from-yaml")], namespace=namespace)
    telling.is_in()
    telling.end(api, made.metadata.name)
