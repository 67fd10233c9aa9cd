"""The engine: decides which create may be sent, when, and why not yet.

Laws of the room: no clock, no I/O, no threads, no Kubernetes or HTTP words. Time and randomness are passed in;
the same calls give the same answers. Names of namespaces, quotas, resources and scopes are opaque strings.
"""

from .controller import Controller
from .demand import Demand, Selector
from .errors import BackoffError, GangError, PolicyError, QuantityError, TicketError
from .explaining import Explanation, Snapshot
from .gangs import Draw, Effect, Gang, GivenBack, Grant, Look, Reservation
from .handler import ComputeResourceAwareBackOffHandler
from .memory import Memory, RememberedCeiling, RememberedQuota
from .outcomes import Abandoned, Created, Expired, Failed, Overloaded, Rejected
from .parts import Parts
from .policy import Policy
from .quotas import ObservedQuota
from .requests import Request
from .seats import Identity
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
]
