"""Finding a cluster (kubeconfig, in-cluster account) and asking it plain questions."""
