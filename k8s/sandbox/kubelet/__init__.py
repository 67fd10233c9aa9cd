"""A fake kubelet that runs and finishes pods: an API client, on real servers too."""
