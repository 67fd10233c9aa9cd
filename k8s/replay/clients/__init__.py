"""The clients compared by a replay: plain retries, Flyte 1's back-off, and the gate."""
