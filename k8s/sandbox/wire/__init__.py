"""What the other rooms build on: JSON as Go reads and writes it, causes of a 422, counters, injected faults."""
