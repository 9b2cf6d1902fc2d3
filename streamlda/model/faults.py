"""Faults of models and topics: rule, remedy and class of each are data."""

from __future__ import annotations

from streamlda.errors import (
    Faults,
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    ModelFileError,
    VocabularyError,
)

_FAULTS = Faults(
    {
        InsufficientDataError: {
            "coherence": "coherence needs at least 1 document; add documents that hold words of "
            "the model",
            "halves": "document completion needs a document with both halves non-empty; evaluate "
            "on more or longer documents",
        },
        InvalidDocumentsError: {
            "split": "document completion splits tokens, so counts must be whole numbers, got "
            "fractions; pass CountVectorizer output, not TF-IDF",
        },
        InvalidSettingError: {
            "alpha": "alpha must be a vector of finite numbers > 0; raise its zero entries to a "
            "small positive number",
            "alpha of model": "alpha must be > 0; fit fewer topics",
            "documents of models": "models to merge must know how many documents they have seen; "
            "set it with dataclasses.replace(model, documents_seen=...)",
            "model": "models must be of type TopicModel; read a file by streamlda.load(path)",
            "models to merge": "models to merge must be two or more, all different; pass each "
            "model once",
            "probabilities": "topics must hold finite numbers >= 0, got a negative, infinite or "
            "NaN entry; fit the model again, or project its topics onto the simplex",
            "shapes": "components must be (K, V), alpha (K,) and background (V,) with K, V >= 1; "
            "pass arrays of one fit",
            "timeline": "a timeline must have ascending bins, and a row of tokens and a number of "
            "documents, finite and >= 0, for each",
            "tolerance": "tolerance must be finite and >= 0",
            "top words": "top words must be a row of 2 or more distinct ids >= 0 for each topic; "
            "make them with top_words",
            "topics": "topics must have one row for each number in alpha and one column a word",
            "words of background": "topics and background must be over the same words",
            "words of topics": "topics must be over the same words to be compared; pass two tables "
            "with a column a word",
        },
        ModelFileError: {
            "bytes of words": "words must be bytes",
            "state": "a model must be a published one, not raw data, the state of a running "
            "engine; keep that file secret, and pass the model that the run saved",
            "words": "words must come with the metadata of a vocabulary, got null",
        },
        VocabularyError: {
            "line feed": "words must not contain a line feed; change the tokenizer",
            "no vocabulary": "a model must have a vocabulary to read text, got a model of "
            "matrices; pass counts, or save it with the names of its words",
            "surrogate": "words must be valid Unicode text, got a lone surrogate; decode the "
            "corpus as UTF-8",
            "vocabulary": "a vocabulary must have one word for each column of components; pass the "
            "one of the fit",
            "words of models": "models to merge must have words that one analyzer finds, the same "
            "hashed columns, or be of matrices of one width; fit them with the same settings of "
            "words",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
