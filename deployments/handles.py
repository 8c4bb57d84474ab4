"""Calls between deployments: cancelled with their caller, and errors as values.

An exception that crosses a handle costs a logged traceback in the replica that raised it. So replicas return our
errors instead of raising them, and `ask` raises them on the caller's side.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from serve_app.errors import DeadlineExceeded, InternalError, ModelUnavailable, PoolserveError, ReplicaDied

_GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
"""What a call between replicas ends with when the other side's process has gone, or is going."""


async def ask(handle: DeploymentHandle, method: str, *args: Any, deadline: float) -> Any:
    """Calls a method of another deployment and returns its value.

    Args:
        handle: the deployment.
        method: its method's name.
        args: passed by value; a reference of `ask_by_reference` is passed on as one.
        deadline: wall-clock seconds at which to give up.

    Raises:
        PoolserveError: what the method returned or raised, in our terms.
        ReplicaDied: the replica died under the call; it may be repeated elsewhere.
        CancelledError: the caller's own cancellation, passed on to the replica.
    """
    value, _ = await _ask(handle, method, args, deadline)
    return value


async def ask_by_reference(handle: DeploymentHandle, method: str, *args: Any, deadline: float) -> tuple[Any, Any]:
    """As `ask`, with the value in Ray's object store.

    Returns:
        The value, read from the store without a copy on the same node, and a reference to it that can be an argument of
        another call.
    """
    return await _ask(handle.options(_by_reference=True), method, args, deadline)


async def _ask(handle: DeploymentHandle, method: str, args: tuple[Any, ...], deadline: float) -> tuple[Any, Any]:
    remaining = deadline - time.time()
    if remaining <= 0:
        raise DeadlineExceeded("the deadline passed before the work began")
    response = getattr(handle, method).remote(*args)
    timeout = asyncio.timeout(remaining)
    try:
        async with timeout:
            value = await response
    except TimeoutError:
        response.cancel()
        if timeout.expired():
            raise DeadlineExceeded("the deadline passed; the work was cancelled") from None
        raise
    except asyncio.CancelledError:
        response.cancel()  # Ray alone leaves about 1 % of the child calls running
        raise
    except RayActorError as error:
        raise ReplicaDied("the replica died") from error
    except grpc.aio.AioRpcError as error:  # Ray translates UNAVAILABLE alone, and not on every path
        if error.code() in _GONE:
            raise ReplicaDied("the replica died") from error
        raise InternalError("the request failed") from error
    except DeploymentUnavailableError:
        raise ModelUnavailable("the model's application is not running") from None
    except RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, PoolserveError) else InternalError("the request failed") from error
    if isinstance(value, PoolserveError):
        raise value
    return value, response
