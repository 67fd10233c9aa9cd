"""A fake kubelet that runs and finishes pods: an API client, which works on real servers too."""
