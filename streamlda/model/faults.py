"""Faults of models and topics: rule, remedy and class of each are data."""

from streamlda import errors

_FAULTS = errors.Faults(
    {
        errors.InsufficientDataError: {
            "coherence": "coherence has no document to count; add documents that hold words of the "
            "model",
            "halves": "no document has two non-empty halves to complete; evaluate on more or "
            "longer documents",
        },
        errors.InvalidDocumentsError: {
            "column": "a column has not one value for each document; pass the column of the same "
            "table",
            "split": "document completion cannot split fractions; pass CountVectorizer output, not "
            "TF-IDF",
        },
        errors.InvalidSettingError: {
            "alpha": "alpha must be a vector of finite numbers > 0; raise its zero entries to a "
            "small positive number",
            "documents of models": "a model to merge does not know how many documents it has seen; "
            "set it with dataclasses.replace(model, documents_seen=...)",
            "mapping": "what is known of a model is no mapping; pass a dict",
            "model": "a model is no TopicModel; read a file by streamlda.load(path)",
            "models to merge": "models to merge are fewer than two, or one twice; pass each model "
            "once",
            "name of topic": "the name of a topic is no line of 1 to 100 characters; shorten it, "
            "or pass None for no name",
            "probabilities": "rows are no probabilities with the sum 1 within 1e-6; clip and "
            "normalize them first",
            "shapes": "components must be (K, V), alpha (K,) and background (V,) with K, V >= 1; "
            "pass arrays of one fit",
            "topic to name": "the model has no such topic; count topics from 0, as streamlda "
            "topics does",
        },
        errors.ModelFileError: {
            "metadata": "the metadata are not those of the format",
            "type of array": "an array is not float64",
        },
        errors.VocabularyError: {
            "line feed": "a word contains a line feed; change the tokenizer",
            "no vocabulary": "a model of matrices has no vocabulary to read text; pass counts, or "
            "save it with the names of its words",
            "surrogate": "a word has a lone surrogate; decode as UTF-8",
            "vocabulary": "a vocabulary has not one word for each column of components; pass the "
            "one of the fit",
            "words of models": "models to merge have words of different analyzers, hashes or "
            "widths; fit them with the same settings of words",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
