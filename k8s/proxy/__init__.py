"""The sidecar: bytes in, bytes out; creates go through the gate, everything else passes untouched."""
