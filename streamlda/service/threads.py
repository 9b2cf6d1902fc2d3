"""Threads, queues and time of the daemon, in one place: tests carry all of it out step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

_T = TypeVar("_T")


class Lane:
    """A thread that carries out tasks, one after the other."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"streamlda-{name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def put(self, task: Callable[[], None]) -> None:
        """Carry out a task after those before it; it must not raise."""
        self._tasks.put(task)

    def end(self) -> None:
        """Take no more tasks."""
        self._tasks.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until all tasks are done; return whether they are."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


class Threads:
    """Real threads, and the monotonic clock."""

    def now(self) -> float:
        """Return the time in seconds, by a clock that never goes back."""
        return time.monotonic()

    def lane(self, name: str) -> Lane:
        """Return a new thread for tasks."""
        return Lane(name)

    def start(self, work: Callable[[], None], name: str) -> None:
        """Carry out one task in a thread of its own."""
        Thread(target=work, name=name, daemon=True).start()

    def wait(self, queue: SimpleQueue[_T], seconds: float) -> _T:
        """Return what comes next in a queue; raise `queue.Empty` after some seconds."""
        return queue.get(timeout=seconds)
