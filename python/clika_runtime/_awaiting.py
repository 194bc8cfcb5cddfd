"""What an ``await`` of a stream, an event or a future runs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from clika_runtime import _core


async def stream(stream: _core.Stream) -> None:
    """Wait for all that was submitted so far; raise and acknowledge its failure."""
    mark = _core._mark(stream)
    await _reached(mark)
    mark.settle()


async def event(event: _core.Event) -> None:
    """Wait for the event; raise the failure that it covers."""
    await _reached(_core._mark(event))
    event._raise()


async def future(future: _core.Future[Any]) -> Any:
    """Wait for the result. Cancelling the wait cancels work that has not started."""
    if not future.done():
        future._refuse_deadlock()
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        future.add_done_callback(lambda _: _release(loop, done))
        try:
            await done
        except asyncio.CancelledError:
            future.cancel()
            raise
    if future.cancelled():
        raise asyncio.CancelledError
    # A StopIteration becomes a RuntimeError on its way out of here, as from any coroutine.
    return future.result()


async def _reached(mark: _core.Mark) -> None:
    if mark.is_reached():
        return
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    mark.when_reached(lambda: _release(loop, done))
    await done


def _release(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
    # A loop that was closed meanwhile has nobody left who waits.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_set, done)


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
