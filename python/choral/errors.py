"""What can go wrong: one class a code. Each message says what is wrong, where, and what to do."""

from __future__ import annotations


class ChoralError(Exception):
    """`code` is stable: "invalid_argument", "not_found", …; `message` is for people."""

    code = "internal"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgumentError(ChoralError, ValueError):
    """A field or option is wrong."""

    code = "invalid_argument"


class NotFoundError(ChoralError, LookupError):
    """A file, model, adapter or name does not exist."""

    code = "not_found"


class AlreadyExistsError(ChoralError):
    """A name is taken."""

    code = "already_exists"


class CorruptError(ChoralError, ValueError):
    """A file breaks its own format."""

    code = "corrupt"


class UnsupportedError(ChoralError, NotImplementedError):
    """It is well-formed, but this build cannot do it."""

    code = "unsupported"


class TooLargeError(ChoralError, ValueError):
    """It is over a stated limit."""

    code = "too_large"


class ResourceExhaustedError(ChoralError):
    """Queue, memory or slots are full now."""

    code = "resource_exhausted"


class UnavailableError(ChoralError):
    """The engine is loading, ending or closed."""

    code = "unavailable"


class CancelledError(ChoralError):
    """The caller gave up."""

    code = "cancelled"


class DeadlineExceededError(ChoralError, TimeoutError):
    """A time limit passed."""

    code = "deadline_exceeded"


class PermissionDeniedError(ChoralError, PermissionError):
    code = "permission_denied"


class InternalError(ChoralError):
    """A bug, or a failing machine."""


_BY_CODE = {error.code: error for error in ChoralError.__subclasses__()}


def error_of(code: str, message: str) -> ChoralError:
    """The exception of a status. The extension module calls it."""
    return _BY_CODE.get(code, InternalError)(message)
