"""The room of what runs already, although nobody in line has let it in."""

from __future__ import annotations

from backoff_ctrl.engine import Reservation
from backoff_ctrl.k8s.workloads.admitting.asking import gang_for, pods_made
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, subject_of
from tests.engine.gangs.test_keeping_room import keeping
from tests.kit.timeline import NS, state_of

SMALL = {
    "metadata": {"namespace": NS, "name": "small"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}},
        "parallelism": 1,
    },
}


def test_what_its_user_has_resumed_gets_the_next_room_before_all_that_waits() -> None:
    """Its pods take that room as soon as it is there. Whoever were let in instead would be refused some of its own."""
    line = keeping(0, 5)
    first = line.keep(5)
    line.appear(first, *"abcde")
    line.observe(5, 5)
    waiting = line.ask(5)
    asked = gang_for(subject_of(JOB, SMALL), pods_made(JOB, SMALL), [1], server="any", standing=True)
    request = Reservation("small", NS, asked.parts, asked.creation.priority, keeps=True)
    line.controller.of(request.namespace).reserve(request, line.now, standing=True)
    line.advance()
    line.later(1)  # the pods that live are no longer held beside what the quota says
    line.observe(0, 5)
    line.end(*"abcde")
    line.later(0.1)
    line.give_back(first)
    line.later(1)
    assert state_of(waiting) == "waiting"
    assert [(each.id, each.lacks) for each in line.seen().gangs] == [("small", {})]
