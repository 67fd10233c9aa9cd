"""Every error that the engine raises. Each is also the builtin error that a caller would expect."""


class BackoffError(Exception):
    """The base of all errors that end a command with their message: those of the engine, and of who asks a gate."""


class QuantityError(BackoffError, ValueError):
    """A value is not a Kubernetes Quantity, or not one that nano-units hold exactly."""


class PolicyError(BackoffError, ValueError):
    """A setting of the policy is out of its range; the message names the setting and the range."""


class GangError(BackoffError, ValueError):
    """A gang cannot be what it is asked to be: its parts make no sense, or all of its members are drawn."""


class TicketError(BackoffError, RuntimeError):
    """A ticket was settled twice, or a request submitted twice: a bug of the caller."""
