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
            "column": "a column must have one value for each document; pass the column of the same "
            "table",
            "split": "document completion splits tokens, so counts must be whole numbers, got "
            "fractions; pass CountVectorizer output, not TF-IDF",
        },
        InvalidSettingError: {
            "alpha": "alpha must be a vector of finite numbers > 0; raise its zero entries to a "
            "small positive number",
            "documents of models": "models to merge must know how many documents they have seen; "
            "set it with dataclasses.replace(model, documents_seen=...)",
            "mapping": "settings and what is known of a model must be mappings; pass a dict",
            "model": "models must be of type TopicModel; read a file by streamlda.load(path)",
            "models to merge": "models to merge must be two or more, all different; pass each "
            "model once",
            "name of topic": "the name of a topic must be a line of 1 to 100 characters; shorten "
            "it, or pass None for no name",
            "probabilities": "rows must be probabilities, with the sum 1 within 1e-6; clip and "
            "normalize them first",
            "shapes": "components must be (K, V), alpha (K,) and background (V,) with K, V >= 1; "
            "pass arrays of one fit",
            "topic to name": "a topic to name must be one of the model; count topics from 0, as "
            "streamlda topics does",
        },
        ModelFileError: {
            "metadata": "the metadata must be those of the format",
            "type of array": "an array must be float64",
        },
        VocabularyError: {
            "line feed": "words must not contain a line feed; change the tokenizer",
            "no vocabulary": "a model must have a vocabulary to read text, got a model of "
            "matrices; pass counts, or save it with the names of its words",
            "surrogate": "words must be valid Unicode text, got a lone surrogate; decode as UTF-8",
            "vocabulary": "a vocabulary must have one word for each column of components; pass the "
            "one of the fit",
            "words of models": "models to merge must have words that one analyzer finds, the same "
            "hashed columns, or be of matrices of one width; fit them with the same settings of "
            "words",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
