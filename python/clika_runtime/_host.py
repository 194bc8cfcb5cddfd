"""The Python half of the host lane: user code runs under it, and under no compiled frame."""

from __future__ import annotations

import contextvars
import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from clika_runtime._core import Future, HostThread, Stream, Visit, _take_log

LOGGER = logging.getLogger("clika_runtime")


def start(number: int) -> BaseException | None:
    """Start a thread of the host lane.

    Returns why that failed. An interrupt that comes when the thread is already there is raised.
    """
    # Whoever takes the ticket decides whether the thread joins the lane.
    ticket = [None]
    thread = threading.Thread(
        target=serve, args=(ticket,), name=f"clika-host-{number}", daemon=True
    )
    try:
        thread.start()
    except BaseException as error:
        if not ticket:
            raise
        ticket.clear()
        return error
    return None


def serve(ticket: list[None]) -> None:
    """Make the calls of the host lane, until the lane has no use for this thread."""
    try:
        ticket.pop()
    except IndexError:
        return
    thread = HostThread(threading.get_native_id())
    take, done, failed = thread.take, thread.done, thread.failed
    context = contextvars.Context()
    run = context.run
    while (call := take()) is not None:
        try:
            result = run(*call)
        except BaseException as error:
            call = None
            failed(error)
        else:
            call = None
            done(result)
            result = None
        if context:
            # The next function is not to see what this one left.
            context = contextvars.Context()
            run = context.run


def notify(
    future: Future[Any],
    callbacks: Sequence[Callable[[Future[Any]], object]],
    condition: threading.Condition | None,
) -> None:
    """Tell everybody who wants to know that a future is done."""
    if condition is not None:
        with condition:
            for waiter in future._waiters:
                _tell(waiter, future)
            condition.notify_all()
    for callback in callbacks:
        try:
            callback(future)
        except BaseException:
            LOGGER.exception("exception calling callback for %r", future)


def log() -> None:
    """Hand over what the runtime told of itself, until there is no more."""
    while (taken := _take_log()) is not None:
        records, lost = taken
        for level, message, thread, time in records:
            if LOGGER.isEnabledFor(level):
                record = LOGGER.makeRecord(
                    LOGGER.name, level, LOGGER.name, 0, "%s", (message,), None
                )
                record.threadName = thread
                record.created, record.msecs = time, time % 1 * 1000
                _handle(record)
        if lost:
            LOGGER.warning("%d records are lost: no thread could be had for them in time", lost)


def _handle(record: logging.LogRecord) -> None:
    """Give a record to the handlers. One that raises is told as `logging` tells its own errors."""
    try:
        LOGGER.handle(record)
    except BaseException:
        if logging.raiseExceptions:
            traceback.print_exc()


def _tell(waiter: Any, future: Future[Any]) -> None:
    """Tell one call of `concurrent.futures.wait` or `as_completed`."""
    if future.cancelled():
        waiter.add_cancelled(future)
    elif future._has_exception():
        waiter.add_exception(future)
    else:
        waiter.add_result(future)


class DefaultStream(Stream):
    """A default stream: its work runs on the thread that submits it."""

    __slots__ = ()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on this thread, in stream order, and return its future."""
        future, visit = self._enter((fn, *args), kwargs, False)
        if visit is not None:
            _make_call(visit, fn, args, kwargs)
        return future

    def _submit_isolated(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future, visit = self._enter((fn, *args), kwargs, True)
        if visit is not None:
            _make_call(visit, fn, args, kwargs)
        return future


def _make_call(
    visit: Visit, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Call a function on this thread, apart from its context variables, as on the host lane."""
    try:
        result = contextvars.Context().run(fn, *args, **kwargs)
    except BaseException as error:
        if visit.failed(error):
            raise
    else:
        visit.done(result)


DefaultStream.__name__ = DefaultStream.__qualname__ = "Stream"
DefaultStream.__module__ = Stream.__module__
