"""What a write must pass: defaults, validation, LimitRanges, and quota admission with its controller.

``charges`` computes what an object is charged, ``ledger`` keeps each quota's status beside the true counts, ``quota``
admits or refuses by the status, and ``quota_controller`` brings the status in line, a little later.
"""

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
