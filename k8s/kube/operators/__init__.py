"""The kinds of other operators (Spark, Ray, MPI, ...), a description each: states, suspension, pods.

A description is a page of YAML. ``sections`` says how its keys, durations and quantities are written, ``paths`` how a
field of an object is named, ``phases`` and ``meanings`` what a state can mean. ``operator_config`` is the whole of it,
``descriptions`` finds and checks those that a platform writes and those that ship (``*.yaml``). ``reading`` applies one
to an object: its state, whether it has ended, which pods it makes. ``states`` has the states of kinds without a
description, and reads descriptions without pydantic for commands that must start quickly. ``wrong_values`` says what is
wrong with a value.

Tasks, the operator that lets suspended objects in, and ``footprint`` read the same descriptions.
"""
