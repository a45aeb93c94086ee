"""This engine's errors as Dynamo's, which say what the frontend answers and whether another worker is asked."""

from __future__ import annotations

from dynamo.llm.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    EngineShutdown,
    HttpError,
    InvalidArgument,
    Unknown,
)

from choral.errors import ChoralError, DeadlineExceededError, InternalError, ResourceExhaustedError, UnavailableError

_STATUS: dict[type[ChoralError], int] = {ResourceExhaustedError: 429, DeadlineExceededError: 504}


def dynamo_error(error: ChoralError) -> Exception:
    if isinstance(error, UnavailableError):
        return EngineShutdown(error.message)  # type: ignore[no-any-return,unused-ignore]
    if type(error) in _STATUS:
        return HttpError(_STATUS[type(error)], error.message)  # type: ignore[no-any-return,unused-ignore]
    if isinstance(error, InternalError) or type(error) is ChoralError:
        return Unknown(error.message)  # type: ignore[no-any-return,unused-ignore]
    return InvalidArgument(error.message)  # type: ignore[no-any-return,unused-ignore]
