"""A stream as a `concurrent.futures.Executor`."""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from collections.abc import Callable
from typing import Any

from clika_runtime._core import Future, Stream


class StreamExecutor(concurrent.futures.Executor):
    """Runs calls in the order of a stream; an exception stays with its own future."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._is_shut_down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call to the stream, and return its future."""
        with self._lock:
            if self._is_shut_down:
                msg = "cannot schedule new futures after shutdown: the stream itself goes on"
                raise RuntimeError(msg)
        future = self._stream._submit_isolated(fn, *args, **kwargs)
        self._futures.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further calls. The stream, and other users of it, go on."""
        with self._lock:
            self._is_shut_down = True
        futures = list(self._futures)
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            concurrent.futures.wait(futures)

    def __repr__(self) -> str:
        return f"<StreamExecutor over {self._stream!r}>"
