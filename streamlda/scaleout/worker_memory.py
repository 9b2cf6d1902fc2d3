"""A plugin of Dask by which workers return freed memory, and keep documents in their folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from streamlda.scaleout.kept import keep_in
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
        """Keep documents in the folder of the worker, and look at its memory if it has a limit."""
        keep_in(worker.local_directory)
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
        keep_in(None)
        callback = worker.periodic_callbacks.pop(NAME, None)
        if callback is not None:
            callback.stop()
