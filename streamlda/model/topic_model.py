"""The topic model, for publication, display and inference."""

import os
import sys
from typing import Any, Self

from streamlda.container import read_arrays, valid_content
from streamlda.model import MAX_DISTANCE, hierarchy, naming
from streamlda.model import document_table as tables
from streamlda.model.coherence import Coherence, count_npmi
from streamlda.model.matching import compare_models
from streamlda.model.merging import merge_models
from streamlda.model.model_file import FORMAT, FORMAT_VERSION, members
from streamlda.model.topics import Topics
from streamlda.text import functions
from streamlda.text.functions import Analyze


class TopicModel(Topics):
    """K topics over V words, with their origin.

    Writable arrays are copied, so that later writes do not change the model; read-only arrays are
    shared. Memory O(K V).

    Parameters
    ----------
    components : ndarray of shape (K, V), float64
        Word probabilities of each topic; every row sums to 1.
    alpha : ndarray of shape (K,), float64
        Dirichlet parameters of the topic mixtures, above 0.
    background : ndarray of shape (V,), float64
        Word frequencies of the corpus (M1); they sum to 1.
    prevalence : ndarray of shape (K,), float64, or None
        Share of all tokens learned from that each topic has, measured by the proportions of the
        documents; sums to 1. None where it was not measured: files of version 1.
    interval : Interval or None
        What came since the model before this one.
    timeline : Timeline or None
        Tokens of each topic by event time, if records have one.
    representative_documents : sequence of K sequences of mappings, or None
        The documents with most of each topic, if the fit was set to keep them, among those of which
        it is the largest topic: ``id``, ``proportion`` (0 to 1) and, where set, ``text``.
    vocabulary : Vocabulary or None
        How text becomes word ids; None for a model of matrices whose columns have no names.
    settings, diagnostics, versions : mapping
        Plain JSON values: the settings of the fit, its diagnostics, and versions of packages.
    documents_seen, tokens_seen : int
        Size of the corpus so far.
    privacy : mapping
        The privacy statement (`streamlda.privacy.statement`); `not_private` by default.
        Old files say ``{"statement": "none"}``, which means the same.
    created : str
        Date and time in ISO 8601, UTC.

    Raises
    ------
    InvalidSettingError
        Naming the rule and the value that breaks it.
    VocabularyError
        If the words cannot be stored, or are not V.
    """

    document_table = tables.document_table
    topics_per_class = tables.topics_per_class
    rename = naming.rename
    label_topics = naming.label_topics
    compare = compare_models
    merge_topics = hierarchy.merge_topics
    reduce = hierarchy.reduce_topics

    def visualize(self, X: Any = None, **options: Any) -> Any:
        """Return the report about this model, to be shown in a notebook or saved.

        With documents `X` it has a map of them, and topics by class and over time. Options and cost
        as `streamlda.visualize`, which it calls.
        """
        # Who draws stands above who is drawn: the package knows it, this module does not.
        return sys.modules["streamlda"].visualize(self, X, **options)

    def coherence(self, X: Any) -> Coherence:
        """Return how well the ten most probable words of each topic go together in documents.

        NPMI as `streamlda.model.coherence` defines it, as ``streamlda evaluate`` and
        ``diagnostics["topic_npmi"]`` (of documents of the fit) have it. Time O(nnz + K documents).

        Parameters
        ----------
        X : texts, or array-like or sparse matrix of shape (n_documents, V)
            As `transform` takes them: held-out ones, and many, for in few pairs of rarer words
            never meet.

        Returns
        -------
        Coherence
            ``mean`` over the topics, ``per_topic`` (K,), and ``documents`` with a known word.

        Raises
        ------
        InsufficientDataError
            If no document has a known word.
        """
        return count_npmi(self.components, self.read(X))

    def topics_over_time(self, X: Any, times: Any, **options: Any) -> Any:
        """Return a table with a row for each month, or other unit of time, and each topic.

        Options and columns as `streamlda.topics_over_time`, which it calls.
        """
        # Times are read above this module, as reports are drawn.
        return sys.modules["streamlda"].topics_over_time(self, X, times, **options)

    def merge(self, *others: Self, max_distance: float = MAX_DISTANCE) -> Self:
        """Return one model of this one and others that have learned from other documents.

        Topics nearer than `max_distance` become one topic, their mean weighted by tokens; all
        others are kept, behind those of this model. Words are those of all models, and names stay.
        There are no seeds, interval, time line and documents to show, nor a prevalence that one
        model lacks. A single fit over all documents is better. ``diagnostics["merged_models"]``
        says where each topic came from. Time O(K^2 V + K^3) for each other model.

        Parameters
        ----------
        *others : TopicModel
            Of the same analyzer, the same hashed columns, or matrices of one width. Documents
            that are in two of them count twice.
        max_distance : float, default 0.55
            Hellinger distance beyond which two topics are different, 0 to 1.

        Raises
        ------
        VocabularyError
            If words cannot be brought together.
        InvalidSettingError
            If one is no model, a model comes twice or does not know its number of documents,
            `max_distance` lies outside 0..1, or no privacy statement would be true: private and
            other models, private ones of different units or the same record slots of one ledger.
        """
        return merge_models((self, *others), max_distance=max_distance)


def load(path: str | os.PathLike[str], *, analyzer: str | Analyze | None = None) -> TopicModel:
    """Read a model file; everything in it is checked before the model is made.

    Time O(K V); memory twice the size of the file while it is read, then once, and the words.

    Parameters
    ----------
    path : str or path-like
        A file of `TopicModel.save`.
    analyzer : str or callable, optional
        What finds the words of texts, for a model that was made with ``"module:function"``: this
        name, or the function. The file has only the name, and a function that a file names is not
        called unless the user names it too.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        As the system gives them, if the file cannot be opened.
    ModelFileError
        If it is not a whole, unaltered model file.
    NewerFormatError
        If a later version of streamlda wrote it.
    """
    file = read_arrays(path, FORMAT, FORMAT_VERSION, oldest=1)
    with valid_content("model", path, remedy="fit and save the model again"):
        model = TopicModel(**members(file))
    if analyzer is not None and model.vocabulary is not None:
        functions.allow(analyzer, model.vocabulary.analyzer.function_name)
    return model
