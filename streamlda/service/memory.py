"""Memory that a daemon needs at most, from its settings alone, before it reads anything.

Nothing that it keeps grows with the stream. ``tests/service/test_memory.py`` checks the bound
against processes.
"""

from streamlda.engine.projections import WARMUP_MAX_ENTRIES
from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import InvalidSettingError
from streamlda.model.representatives import CANDIDATES
from streamlda.private.settings import DENSE_FEATURES
from streamlda.private.stage import DOUBLES
from streamlda.settings.build import engine_settings, most_words, private_settings
from streamlda.settings.table import MIB, RunSettings
from streamlda.spectral.moments import BLOCK_DOCUMENTS
from streamlda.stream.vocabulary_choice import (
    MOST_CHARACTERS,
    VOCABULARY_CHARACTERS,
    most_counted,
)
from streamlda.utils.process import get_memory_limit

#: Part of what a control group allows that is the daemon's: the kernel also counts files that are
#: being written, buffers of connections, and other processes there, such as a health check.
OF_GROUP = 0.9

#: The interpreter with all libraries and the compiled kernels; texts and records being decoded; the
#: candidates for words; an entry of a document, a word in the tables of words, and a document that
#: may be shown: some 200 distinct words, its id, and the beginning of its text.
PROCESS_BYTES, READING_BYTES, CHOOSING_BYTES = 256 * MIB, 96 * MIB, 128 * MIB
ENTRY_BYTES, WORD_BYTES, DOCUMENT_BYTES = 12, 400, 4096


def memory_needed(settings: RunSettings, n_features: int | None = None) -> int:
    """Return the bytes of the state, and of the largest work at one time, of one partition."""
    V = most_words(settings.vocabulary) if n_features is None else n_features
    learned = settings.vocabulary.kind in ("learned", "private")
    choosing = CHOOSING_BYTES + VOCABULARY_CHARACTERS if learned else 0
    words = 0 if settings.vocabulary.kind == "hashed" else WORD_BYTES * V
    state, work = _learn_privately(settings, V) if settings.private else _learn(settings, V)
    kept = PROCESS_BYTES + READING_BYTES + settings.memory.queue + words
    topics = settings.topics
    kept += 2 * CANDIDATES * topics.representative_documents * topics.count * DOCUMENT_BYTES
    if settings.vocabulary.grow_every is not None:
        # Texts are Python's, of up to 4 bytes a character.
        kept += WORD_BYTES * most_counted(settings.vocabulary.size) + 4 * MOST_CHARACTERS
    return kept + state + max(work, choosing)


def _learn(settings: RunSettings, V: int) -> tuple[int, int]:
    """Return bytes of a state with its copy, and of the first projection or a snapshot."""
    begun = settings.topics.projection_file is not None
    asked = engine_settings(settings, V, sums=begun, keeps=not begun)
    m, t, K = asked.n_columns, asked.n_triple_columns, asked.n_components
    warmup = ENTRY_BYTES * max(WARMUP_MAX_ENTRIES, asked.kept_entries)
    # The projection, its sums, and what an orthonormal basis of them is made from.
    projection = 8 * 6 * V * m + warmup + 8 * BLOCK_DOCUMENTS * 3 * m
    snapshot = 8 * (
        4 * V * t + 6 * V * K + 4 * t**3 if asked.solver == WHITENED_TENSOR else 10 * V * K
    )
    return asked.state_bytes + max(asked.state_bytes, warmup), max(projection, snapshot + warmup)


def _learn_privately(settings: RunSettings, V: int) -> tuple[int, int]:
    """Return bytes of sums on the grid with their copy, and of a release or the topics."""
    asked = private_settings(settings, V)
    K, words = asked.n_components, min(V, DENSE_FEATURES) if asked.refines else V
    m = V if asked.n_columns is None else asked.n_columns
    # Pairs of words, or words through a projection.
    by_pairs = asked.refines or asked.n_columns is None
    cells = (words * (words + 1) // 2 if by_pairs else V * m) + V * (K + 1) + K**3
    # Prefix sums have some twenty buffers.
    copies = 20 if asked.mode == "prefix" else 2
    return 8 * copies * (cells + V * m), 8 * max(6 * cells, 6 * words * m, 12 * DOUBLES)


def check_memory(settings: RunSettings, n_features: int | None = None) -> str:
    """Say how much memory is needed; refuse settings that its control group has no room for."""
    needed, allowed = memory_needed(settings, n_features), get_memory_limit()
    if allowed is not None and needed > OF_GROUP * allowed:
        raise InvalidSettingError(
            f"the daemon needs up to {needed / MIB:,.0f} MiB, and its control group allows "
            f"{allowed / MIB:,.0f} MiB, of which a tenth must stay free; lower vocabulary.size, "
            "vocabulary.hash_bits, topics.count or memory.queue, or allow "
            f"{needed / OF_GROUP / MIB:,.0f} MiB"
        )
    return f"up to {needed / MIB:,.0f} MiB"
