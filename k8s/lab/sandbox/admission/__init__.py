"""Admission in the sandbox: defaults, validation, LimitRanges, and quota admission with its controller.

A new object gets the server's ``defaults``, then those of LimitRanges (``limit_ranges``). ``validation`` checks it kind
by kind; the bounds of LimitRanges follow, and quota admission is the last, as on a real server.
``verbs/writing`` calls them in this order. ``amounts`` and ``resources`` have the arithmetic of quantities and the
totals of a pod.

``charges`` computes what an object is charged, and by which quotas. ``ledger`` follows the store, and keeps the status
of each quota beside the true counts. ``quota`` admits or refuses by the status alone, and charges all quotas of the
namespace before the object is stored. ``quota_controller`` brings the status in line with the true counts some
milliseconds after a release, and recounts everything periodically.

What surprises: the status may be wrong for a while, on purpose. A create that is sent after a deletion but before the
recount is still refused, and if the store refuses an object that was charged, the charge stays until the next recount.
The sandbox and the gate share no code: ``charges`` and ``amounts`` repeat the rules of ``k8s/kube/charges`` and of the
engine's quantities, so that each proves the other.
"""
