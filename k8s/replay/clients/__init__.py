"""Who competes in the replay: plain retries, Flyte's back-off, the gate."""
