"""Plan of the memory of a daemon, from its settings alone, before it reads anything.

A plan lists the parts that are there at the same time: what stays, and the largest of the works
that come one at a time. Nothing that the daemon keeps grows with the stream.
``tests/service/test_memory.py`` checks the plan against processes.
"""

from __future__ import annotations

import math
from typing import Any

from streamlda.engine.following import MEMBER_PART
from streamlda.engine.measures import measures_bytes
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.engine.warmup import WARMUP_MAX_ENTRIES
from streamlda.errors import InvalidSettingError
from streamlda.model.representatives import CANDIDATES
from streamlda.privacy.prefix_sums import buffered_toeplitz
from streamlda.private.settings import MOST_WORDS
from streamlda.private.stage import DOUBLES
from streamlda.settings.build import engine_settings, most_words, private_settings
from streamlda.settings.rules import GROUP
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.table import MIB
from streamlda.spectral.moments import BLOCK_DOCUMENTS
from streamlda.storage.snapshots import CACHED_MODELS
from streamlda.stream.blocks import ENCODED_CHARACTERS
from streamlda.stream.vocabulary_choice import (
    MOST_CHARACTERS,
    VOCABULARY_CHARACTERS,
    most_counted,
)
from streamlda.stream.vocabulary_choice import WORD_BYTES as GROWING_BYTES
from streamlda.utils.process import allowed_bytes

Plan = list[tuple[str, int]]

#: Part of what the control group allows that is the daemon's: the kernel also counts files that
#: are being written, buffers of connections, and other processes there, such as a health check.
OF_GROUP = 0.9

#: The interpreter with all libraries and the compiled kernels. Measured: 213 MiB after the imports
#: (Python 3.11, NumPy 2, Numba 0.6x, SciPy), some 20 MiB more once the kernels are loaded.
PROCESS_BYTES = 256 * MIB

#: One part in this many of the rest stays free.
LEFT_FREE = 16

#: What the client may hold beside the queue: fetched batches, and one poll being decoded.
SOURCE_BYTES = 32 * MIB

#: What a step of a refinement takes beside the topics: responsibilities of some documents.
REFINING_BYTES = 32 * MIB

#: Copies of what documents contribute to a private stage at a time: as listed, squared, scaled, on
#: the grid, and in the order of their rows; and as much again of a part with long documents.
COPIES = 12

#: A word with its entries in the tables of words.
WORD_BYTES = 300

#: A document that may be shown: some 200 distinct words, its id, and the beginning of its text.
DOCUMENT_BYTES = 4096

#: Bytes of an entry of a document (count and word), and of the table of candidates for words.
ENTRY_BYTES = 12
CANDIDATES_BYTES = 128 * MIB


def memory_plan(settings: RunSettings, n_features: int | None = None) -> Plan:
    """Return what takes memory, and how many bytes: their sum is the most there will be."""
    grows = settings.vocabulary.grow_every is not None
    V = most_words(settings.vocabulary) if n_features is None or grows else n_features
    sums, written, works = (_private if settings.private else _public)(settings, V)
    kind = settings.vocabulary.kind
    words = 0 if kind == "hashed" else WORD_BYTES
    documents = 2 * CANDIDATES * settings.topics.representative_documents
    if kind in ("learned", "private"):
        works["choosing words"] = VOCABULARY_CHARACTERS + CANDIDATES_BYTES
    growing = 0
    if grows:
        # Texts are Python's, of up to 4 bytes a character.
        growing = GROWING_BYTES * most_counted(settings.vocabulary.size) + 4 * MOST_CHARACTERS
    # Models as the page holds them, each twice; what is fetched, and results of one poll.
    models = 8 * V * settings.topics.count * 2 * CACHED_MODELS
    inference = 0 if settings.infer.topic is None else models + SOURCE_BYTES
    what, largest = max(works.items(), key=lambda work: work[1])
    of = "sums of the engine"
    if settings.source.kind == "kafka" and settings.kafka.partitions == GROUP:
        more = _mib(partition_bytes(settings, V))
        of = f"sums of one partition; with their copy, each further one takes {more} more"
    plan = [
        ("interpreter, libraries and kernels", PROCESS_BYTES),
        ("words", words * V),
        ("words that may enter", growing),
        ("documents to show", documents * settings.topics.count * DOCUMENT_BYTES),
        (of, sums),
        ("a copy of them while a checkpoint is written", written),
        ("a block of documents, split and encoded", 8 * ENCODED_CHARACTERS),
        ("documents that wait", settings.memory.queue),
        ("what the source holds", SOURCE_BYTES),
        ("inference: models and what is fetched", inference),
        (f"the largest work at one time: {what}", largest),
    ]
    return [*plan, ("what is left free", sum(size for _, size in plan) // LEFT_FREE)]


def partition_bytes(settings: RunSettings, n_features: int) -> int:
    """Return what one more partition takes, and a copy of it while a checkpoint is written."""
    asked = engine_settings(settings, n_features, sums=settings.topics.projection_file is not None)
    # Topics, those they began with, and the newest documents; or sums.
    newest = 12 * WARMUP_MAX_ENTRIES // MEMBER_PART
    kept = 2 * asked.refining_bytes + newest if asked.refines else asked.state_bytes
    return 2 * (kept + measures_bytes(n_features, dated=settings.source.time_field is not None))


def memory_limit(settings: RunSettings) -> int | None:
    """Return the most memory to take: ``memory.limit``, else a part of what the group allows."""
    if settings.memory.limit is not None:
        return settings.memory.limit
    allowed = allowed_bytes()
    return None if allowed is None else int(OF_GROUP * allowed)


def check_memory(settings: RunSettings, n_features: int | None = None) -> Plan:
    """Return the plan, if it stays within the limit."""
    plan = memory_plan(settings, n_features)
    limit, total = memory_limit(settings), sum(size for _, size in plan)
    if limit is None or total <= limit:
        return plan
    wanted = f'set memory.limit = "{-(-total // MIB)} MiB"'
    if settings.memory.limit is None:
        wanted = f"allow the control group {math.ceil(total / OF_GROUP / MIB)} MiB"
    parts = "".join(f"\n- {what}: {_mib(size)}" for what, size in plan)
    words = "hash_bits" if settings.vocabulary.kind == "hashed" else "size"
    raise InvalidSettingError(
        "the memory that is planned must be within memory.limit, got "
        f"memory.limit={_mib(limit)} planned={_mib(total)}; lower vocabulary.{words}, "
        f"topics.count, topics.oversampling, memory.kept or memory.queue, or {wanted}:{parts}"
    )


def _public(settings: RunSettings, V: int) -> tuple[int, int, dict[str, int]]:
    # Sums through a projection take more than a refinement from a start.
    begun = settings.topics.projection_file is not None
    asked = engine_settings(settings, V, sums=begun, keeps=not begun)
    m, t, K = asked.n_columns, asked.n_triple_columns, asked.n_components
    whitened = asked.solver == WHITENED_TENSOR
    warmup = ENTRY_BYTES * max(WARMUP_MAX_ENTRIES, asked.kept_entries)
    projection = 8 * V * m
    block = 8 * BLOCK_DOCUMENTS * 3 * m
    works: dict[str, int] = {
        # The projection, its sums, and what an orthonormal basis of them is made from.
        "the first projection": 6 * projection + warmup + block,
        "a new projection": 4 * projection + block,
        "a snapshot": 8 * (4 * V * t + 2 * V * K + 4 * t**3 if whitened else 6 * V * K),
    }
    state = asked.state_bytes + measures_bytes(V, dated=settings.source.time_field is not None)
    if asked.refines:
        # The newest documents, which are joined in a copy to be fitted, the topics of now, and
        # those that retired.
        state += warmup + 12 * V * K
        works["a snapshot"] += 8 * 4 * V * K + warmup + REFINING_BYTES
        works["the start of the refinement"] = works.pop("a snapshot")
    return state, max(state, warmup), works


def _private(settings: RunSettings, V: int) -> tuple[int, int, dict[str, int]]:
    asked = private_settings(settings, V)
    K, m = asked.n_components, asked.n_columns
    cells = (V * (V + 1) // 2 if m is None else V * m) + V + K**3
    # On the grid; and the projection.
    sums = 8 * (cells + V * (m or 0))
    topics = 8 * (6 * V * (m or V) + 4 * K**3)
    if asked.begins_with_common:
        # Pairs of common words, then the rounds.
        n = min(V, MOST_WORDS)
        cells = max(n * (n + 1) // 2 + V, V * (K + 1))
        sums, topics = 8 * (cells + V * (m or V)), 8 * (6 * n * n + 4 * V * K)
    copies = 1
    if asked.mode == "prefix":
        assert asked.snapshots is not None
        copies = 2 * buffered_toeplitz(asked.snapshots).n_buffers + 3
    works: dict[str, Any] = {
        "a release": 8 * 6 * cells,
        "a block": max(COPIES * 8 * DOUBLES, REFINING_BYTES),
        "topics": topics,
    }
    return sums * copies, 8 * cells * copies, works


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"
