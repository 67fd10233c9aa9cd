"""Tasks that run at other services: once, in line, and gently. ``webapi`` manages them, ``rest`` and ``connector``
speak.

- ``webapi`` is the manager of such tasks: slots, pacing by origin, caches, secrets, ends.
- ``rest``: services with a REST API, described by YAML: requests as templates, answers as phases.
- ``connector``: connectors of Flyte, by gRPC.
"""
