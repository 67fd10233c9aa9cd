"""JSON as Go reads and writes it, problems, counters, injected faults."""
