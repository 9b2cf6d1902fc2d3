"""A plugin of Dask by which workers return the memory that tasks freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from streamlda.utils.process import resident_bytes, return_freed_memory

if TYPE_CHECKING:
    from distributed import Worker

#: Fraction of its limit from which on a worker returns what was freed, and how often, in seconds.
#: At 0.8 Dask pauses it.
TRIM, EVERY_SECONDS = 0.6, 1.0

NAME = "streamlda-memory"


class ReturnsFreedMemory(WorkerPlugin):
    """Gives the system back what was freed, while a worker takes much of its limit.

    Dask pauses a worker by what the system says it takes. The allocator keeps most of what is
    freed, and a paused worker runs nothing: without this it was seen to stay paused to the end.
    """

    idempotent = True
    name = NAME

    def setup(self, worker: Worker) -> None:
        """Look at the memory now and then, if the worker has a limit."""
        limit = worker.memory_manager.memory_limit
        if limit is None:
            return

        def look() -> None:
            if resident_bytes() > TRIM * limit:
                return_freed_memory()

        worker.periodic_callbacks[NAME] = PeriodicCallback(look, 1000 * EVERY_SECONDS)
        worker.periodic_callbacks[NAME].start()

    def teardown(self, worker: Worker) -> None:
        """Look no more."""
        callback = worker.periodic_callbacks.pop(NAME, None)
        if callback is not None:
            callback.stop()
