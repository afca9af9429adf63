"""A session's events as an asynchronous iterator."""

import asyncio
import collections
import threading
from typing import Any, Optional

__all__ = ["EventStream"]

_LAST = frozenset({"run_finished", "run_stopped", "run_failed"})


def _set(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


class EventStream:
    """The events of a session for `async for`.

        events = penstock.EventStream()
        session = penstock.Session("photos.toml", on_event=events)
        async for event in events:              # in any event loop; dicts, as on_event gets them
            print(event["kind"])

    Ends after run_finished, run_stopped or run_failed, or with close(). One task at a time may
    iterate. Keeps the latest `most` events that have not been taken; `missed` counts those dropped.
    """

    def __init__(self, most: int = 10_000) -> None:
        if most < 1:
            raise ValueError("most must be at least 1")
        self.missed: int = 0
        self._most = most
        self._lock = threading.Lock()
        self._waiting: collections.deque[dict[str, Any]] = collections.deque()
        self._over = False
        self._waiter: Optional[tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]] = None

    def __call__(self, event: dict[str, Any]) -> None:
        """The on_event callback: runs on a thread of the session."""
        with self._lock:
            if self._over:
                return
            if len(self._waiting) == self._most:
                self._waiting.popleft()
                self.missed += 1
            self._waiting.append(event)
            self._over = event.get("kind") in _LAST
            self._wake()

    def close(self) -> None:
        """Ends the iterator after the events already received. Any thread may call."""
        with self._lock:
            self._over = True
            self._wake()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> dict[str, Any]:
        while True:
            with self._lock:
                if self._waiting:
                    return self._waiting.popleft()
                if self._over:
                    raise StopAsyncIteration
                if self._waiter is not None and not self._waiter[1].done():
                    raise RuntimeError("another task is already waiting for the next event")
                loop = asyncio.get_running_loop()
                woken: "asyncio.Future[None]" = loop.create_future()
                self._waiter = (loop, woken)
            try:
                await woken
            finally:
                with self._lock:
                    self._waiter = None

    def _wake(self) -> None:
        if self._waiter is None:
            return
        loop, woken = self._waiter
        try:
            loop.call_soon_threadsafe(_set, woken)
        except RuntimeError:
            pass  # the loop is closed
