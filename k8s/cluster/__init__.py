"""Find a cluster (kubeconfig, in-cluster service account) and send it simple requests."""
