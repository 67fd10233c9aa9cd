"""ResourceQuota: what objects are charged, quota admission with its races, and the quota controller."""
