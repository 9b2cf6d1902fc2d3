"""Kernels of several threads: they meet where that is safe, and are kept apart where it is not."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import threading
import numba
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from streamlda.threads import one_at_a_time
from streamlda.spectral.whitening import random_map

documents = PlantedLDA(3, 200, seed=1, mean_length=50).documents(2000)

def work():
    for _ in range(20):
        with one_at_a_time():
            Moments(random_map(200, 20, 0), 10).add(documents)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(numba.threading_layer())
"""


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_three_threads_may_use_kernels_at_a_time(layer):
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == layer


def test_without_the_lock_the_process_would_end():
    """What the lock is for: the scheduler of Numba's own ends a process that enters it twice."""
    program = PROGRAM.replace("with one_at_a_time():", "if True:")
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "Concurrent access" in done.stderr
