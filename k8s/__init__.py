"""The cluster: every Kubernetes and HTTP word lives in this room.

Laws of the room: it asks the engine (``backoff_ctrl``) and nothing of ``api``. What only reads texts and
manifests (``rejections``, ``footprint``) is pure and loads no client; the official client is imported where it
is used, late, since it costs a quarter of a second.
"""
