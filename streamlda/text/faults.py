"""Faults of texts, words and their settings: rule, remedy and class of each are data."""

from __future__ import annotations

from streamlda.errors import (
    Faults,
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    VocabularyError,
)

_ROOM = (
    "the document frequencies must leave room between them; lower min_document_frequency, raise "
    "max_document_frequency (1.0 keeps all), or give more documents"
)

_FAULTS = Faults(
    {
        InvalidSettingError: {
            "analyzer": "an analyzer must return a list of words, each a str, for any text",
            "clean": "clean must be of attachments, urls, emails, html, initialisms",
            "function": "a token pattern and an analyzer must not both be given",
            "groups": "token_pattern must be text with at most one group; write other groups as "
            "(?:...)",
            "language": "stop words must be of a known language; name one of known, or give a file",
            "lowercase": "lowercase must be true, false, or turkish with normalize",
            "ngrams": "ngram_range must be two whole numbers with 1 <= shortest <= longest",
            "normalize": "normalize must be true or false",
            "pattern": "token_pattern must be a regular expression",
            "phrase": "phrases must each be of two words or more once stop words are dropped; "
            "leave it out, or add words that the analyzer keeps",
            "phrases": "phrases must be a list of them, got one string; put it in a list",
            "room of counts": _ROOM,
            "stop words": "stop_words must be languages such as english,german, a list of words "
            "or None",
            "stop words of text": "stop_words must hold strings only, got something else in it",
            "unknown analyzer": "an analyzer must be module:function",
        },
        InsufficientDataError: {"room": _ROOM},
        InvalidDocumentsError: {
            "texts": "texts must be a list, series, array or table of one column of documents; put "
            "them into a list",
        },
        VocabularyError: {
            "analyzer of a model": "the analyzer that a model was made with must be given before "
            "it is called; use the option, or streamlda.load(path, analyzer=...)",
            "fingerprint": "the words must be those that the metadata was made with",
            "hashed": "a vocabulary has words or, if hashed, hash bits",
            "kind": "the kind of a vocabulary must be given, learned, selected or hashed",
            "learned": "a learned vocabulary must have at least one word within the document "
            "frequencies; give more documents, or raise max_document_frequency (1.0 keeps all "
            "words)",
            "list": "a word list must be a readable file; check the name",
            "metadata": "the metadata of a vocabulary must be whole",
            "names": "names must be those of all columns of a hashed vocabulary",
            "no words": "a word list must have at least one word; put one on each line",
            "one string": "words must be a list of words, got one string",
            "selection": "selection must be a mapping of plain JSON values that says how the words "
            "were selected; pass the record of the private selection",
            "twice": "a word list must have each word once; remove one of them",
            "utf8": "a word list must be UTF-8; convert the file",
            "word": "each word must be a non-empty str",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
