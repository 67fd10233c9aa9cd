"""Every error that the engine raises. Each is also the builtin that a caller would expect."""


class BackoffError(Exception):
    """The root of the engine's errors."""


class QuantityError(BackoffError, ValueError):
    """A text is not a Kubernetes Quantity, or one that this project can hold exactly."""


class PolicyError(BackoffError, ValueError):
    """A knob of the policy is out of its range; the sentence names the knob and the range."""


class TicketError(BackoffError, RuntimeError):
    """A ticket was ended twice, or a request was submitted twice: a bug of the caller's."""
