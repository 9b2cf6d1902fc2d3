"""Word counts of a corpus that its user has, for Figure 3 of DP-LDA and for the benchmarks."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from streamlda.documents import DocumentBatch

#: Texts, and which of them are held out.
Blocks = Iterator[tuple[list[str], Any]]

BLOCK = 5000
#: Documents held out of an archive of reviews: the first of those without a label.
UNLABELLED_HELD_OUT = 2000


def is_archive(path: Path) -> bool:
    return path.name.endswith((".tar.gz", ".tgz"))


def texts_of(path: Path, text_field: str = "text", every: int = 40) -> Blocks:
    """Return the texts of a corpus: JSON Lines, or the archive of reviews."""
    if is_archive(path):
        return texts_of_reviews(path)
    return texts_of_lines(path, text_field, every)


def texts_of_lines(path: Path, text_field: str = "text", every: int = 40) -> Blocks:
    """Yield the texts of JSON Lines, the last of every N held out."""
    from streamlda.stream.source import open_source

    source = open_source("files", str(path), text_field=text_field)
    exhausted, first = False, 0
    while not exhausted:
        batch = source.poll(BLOCK)
        exhausted = batch.exhausted
        if texts := list(batch.documents):
            rows = np.arange(first, first + len(texts))
            first += len(texts)
            yield texts, rows % every == every - 1
    source.close()


def texts_of_reviews(path: Path) -> Blocks:
    """Yield the 50,000 labelled reviews of the IMDb archive; 2,000 without a label are held out."""
    texts: list[str] = []
    out: list[bool] = []
    unlabelled = 0
    with tarfile.open(path) as archive:
        for member in archive:
            # aclImdb/train/unsup/1_0.txt
            kind = member.name.split("/")[2:3]
            if not member.isfile() or kind not in (["pos"], ["neg"], ["unsup"]):
                continue
            is_out = kind == ["unsup"]
            unlabelled += is_out
            content = archive.extractfile(member)
            if content is None or (is_out and unlabelled > UNLABELLED_HELD_OUT):
                continue
            texts.append(content.read().decode("utf-8"))
            out.append(is_out)
            if len(texts) == BLOCK:
                yield texts, np.array(out)
                texts, out = [], []
    if texts:
        yield texts, np.array(out)


def count_words(blocks: Callable[[], Blocks], size: int, path: str) -> int:
    """Learn a vocabulary, count its words and store the counts; return how many documents."""
    import scipy.sparse

    from streamlda.text.analysis import TextAnalyzer
    from streamlda.text.vocabulary import Vocabulary

    vocabulary = Vocabulary.learn(
        (text for texts, _ in blocks() for text in texts),
        size=size,
        analyzer=TextAnalyzer(stop_words="english"),
    )
    found, flags = [], []
    for texts, held_out in blocks():
        found.append(vocabulary.encode(texts).batch.to_csr())
        flags.append(held_out)
    X, out = scipy.sparse.vstack(found, "csr"), np.concatenate(flags)
    arrays: dict[str, Any] = {"n_features": np.array(X.shape[1])}
    arrays["words"] = np.array(vocabulary.words)
    for part, rows in (("train", X[~out]), ("held_out", X[out])):
        arrays |= {f"{part}.counts": rows.data, f"{part}.word_ids": rows.indices}
        arrays[f"{part}.row_pointers"] = rows.indptr.astype(np.int64)
    # Whole or not at all: a run that was stopped must not leave half a file for the next one.
    unfinished = Path(f"{path}.{os.getpid()}.npz")
    np.savez(unfinished, **arrays)
    unfinished.replace(path)
    return int(X.shape[0])


def read_counts(path: str, part: str) -> DocumentBatch:
    """Return the counts of the part "train" or "held_out" that `count_words` stored."""
    from streamlda.documents import DocumentBatch

    with np.load(path, allow_pickle=False) as file:
        names = ("counts", "word_ids", "row_pointers")
        counts, word_ids, row_pointers = (file[f"{part}.{name}"] for name in names)
        return DocumentBatch(counts, word_ids, row_pointers, int(file["n_features"]))


def read_words(path: str) -> Any:
    """Return the words of the columns that `count_words` stored."""
    with np.load(path, allow_pickle=False) as file:
        return file["words"]
