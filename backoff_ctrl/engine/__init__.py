"""The engine: decides which create may be sent, when, and why not yet.

A namespace has quotas, and creators that want more than the quotas hold. The engine stands between them. A
caller hands it a request for each create, and sends the create only when the engine answers with a ticket. So
creates wait in order, and the server is asked only where it may say yes.

**What it knows.** A *ceiling* is one resource of one quota: how much is allowed, and how much is used. It is
*learned* from the text of a refusal, or *observed* in the quota object. Each fact has a time, and an older fact
never replaces a newer one. A fact teaches only what it proves: a refusal names the resources that were
exceeded, and proves no amount of the others. So *headroom* (allowed, less used, held and reserved) is a hint. The
server decides.

**Holds.** From the moment a create is sent until the quota shows its charge, its amounts are *held*. A charge
may be seen before or after the answer, and a recount may miss it for a moment. Holds are handed over from one
to the other so that no charge is counted twice or lost.

**The backlog.** Who does not fit waits in the line of its namespace. Its place is the time it came, less a step
for each point of priority. Two that wait never change places, so the line is never sorted again. Equal requests
form a *row*, of which only the head is ever weighed: a thousand equal pods cost no more than one. A smaller
request may overtake a larger one that is blocked, but only for so often and so long. Then room is *kept* for
the larger one until it is in.

**Blocks and probes.** Where no watch reports the quota, only a create can find out whether there is room again.
A *block* is a full ceiling with a back-off: 1, 2, 4, ... up to 20 seconds, with jitter. When its time has come,
one request goes out as a *probe*, while all others wait. If it gets in, the next may go at once. If it is refused,
the back-off grows by a step. A block belongs to the ceiling and not to the request, so all who wait there share
one probe. Where a watch reports the quota there are no probes: news of room wakes those who fit, after a moment
in which the server's own cache catches up.

**First contact and overload.** Where no quota is known, creates in flight grow from one upward, as in TCP. When
the server itself is overloaded, a window per server and credential shrinks and grows again. A namespace whose
webhooks fail or whose quota objects are fought over is slowed alone.

**Gangs.** Several creates that are of use only together wait as one request. The whole is granted when all of
it fits. Its amounts are *reserved* from then on, and each member *draws* its share when it is sent. Of two
gangs that lack room the younger gives way, so they never wait for each other.

**Seats.** A caller that hangs up may retry. Its place is kept for some seconds as an empty *seat*, known by who
asks and for what. A seat is not a request: it is never admitted and takes no room. A caller that was asked to
retry leaves its request in line, *away*: it is not sent, and holds the room it would get until its caller is due.

**For those who look.** The engine can say why a request waits, at which ceilings, at which place, and about how
long. What it shows comes in pages of a millisecond, since no create is served meanwhile.

**What is pure.** All of it. The engine reads no clock, does no I/O, starts no thread and knows no word of
Kubernetes or HTTP. Names of namespaces, quotas, resources and scopes are texts to it. Time and randomness are
passed in; the same calls give the same answers. Amounts are whole nano-units; no float touches one.

**Who calls it.** The gate, under its lock, through ``Controller``: ``submit`` a request, ``advance`` to get
tickets and refusals, ``settle`` a ticket when its create has ended, ``observe_quota`` when a watch has news.
``advance`` follows each of the calls, and is due again at ``next_deadline``. What concerns one namespace alone is asked
of its handler: ``controller.of("team").withdraw(request, now)``; of its gangs: ``gangs_of``. Each of these calls moves
time on. The replay calls the engine in virtual time.

**Where to begin.** ``controller`` is all namespaces, ``handler`` is one. ``admission`` decides about one
create, ``gang_admission`` about several as one. ``facts`` has quotas and ceilings, ``line`` the backlog and the probes
(``blocks``), ``gangs`` several creates as one, ``look`` what people see. ``requests`` and ``blocks`` have the two
tables of states.
"""

from backoff_ctrl.engine.facts.demand import Demand, Selector
from backoff_ctrl.engine.facts.outcomes import Abandoned, Created, Expired, Failed, Overloaded, Rejected, Uncounted
from backoff_ctrl.engine.facts.parts import Parts
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.facts.requests import Identity, Request
from backoff_ctrl.engine.gangs.gang import Draw, Effect, Gang, GivenBack, Grant, Look, Reservation
from backoff_ctrl.engine.look.explaining import Explanation, Snapshot
from backoff_ctrl.engine.look.memory import Memory, RememberedCeiling, RememberedQuota

from .controller import Controller
from .errors import BackoffError, GangError, PolicyError, QuantityError, TicketError
from .handler import ComputeResourceAwareBackOffHandler
from .policy import Policy
from .tickets import Refusal, Ticket

__all__ = [
    "Abandoned",
    "BackoffError",
    "ComputeResourceAwareBackOffHandler",
    "Controller",
    "Created",
    "Demand",
    "Draw",
    "Effect",
    "Expired",
    "Explanation",
    "Failed",
    "Gang",
    "GangError",
    "GivenBack",
    "Grant",
    "Identity",
    "Look",
    "Memory",
    "ObservedQuota",
    "Overloaded",
    "Parts",
    "Policy",
    "PolicyError",
    "QuantityError",
    "Refusal",
    "Rejected",
    "RememberedCeiling",
    "RememberedQuota",
    "Request",
    "Reservation",
    "Selector",
    "Snapshot",
    "Ticket",
    "TicketError",
    "Uncounted",
]
