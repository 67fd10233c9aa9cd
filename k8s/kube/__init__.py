"""What Kubernetes says: its answers, its charges, its cluster, what operators make. It knows no other door.

- ``answers``: what an API server's answer means; unknown JSON, read strictly or leniently. ``paths``: how its paths are
  written. Both pure.
- ``charges``: what a manifest, or a living object, is charged, and what it will make. Pure.
- ``cluster``: where the API server is, with whose credentials it is asked, and single requests about objects.
- ``operators``: the kinds of other operators: where their objects have a state, what it means, which pods they make.
- ``watching``: how any kind is listed and watched, and what is kept of it. ``holders``: who holds a quota.
- ``pauses``: the pauses between the tries of one thing. ``time_limit``: the longest time for a call that blocks.
  ``recent``: answers that are not asked for again while they are fresh.
"""
