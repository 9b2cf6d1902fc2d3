"""Faults of texts, words and their settings: rule, remedy and class of each are data."""

from streamlda import errors

_ROOM = (
    "the document frequencies leave no room between them; lower min_document_frequency, raise "
    "max_document_frequency (1.0 keeps all), or give more documents"
)

_FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "analyzer": "an analyzer returns no list of words, each a str, for a text",
            "clean": "clean must be of attachments, urls, emails, html, initialisms",
            "function": "a token pattern and an analyzer are both given",
            "groups": "token_pattern must be text with at most one group; write other groups as "
            "(?:...)",
            "language": "stop words are of no known language; name one of known, or give a file",
            "lowercase": "lowercase must be true, false, or turkish with normalize",
            "ngrams": "ngram_range must be two whole numbers with 1 <= shortest <= longest",
            "normalize": "normalize must be true or false",
            "pattern": "token_pattern must be a regular expression",
            "phrase": "a phrase has fewer than two words once stop words are dropped; leave it "
            "out, or add words that the analyzer keeps",
            "phrases": "phrases must be a list of them, got one string; put it in a list",
            "room of counts": _ROOM,
            "stop words": "stop_words must be languages such as english,german, a list of words "
            "or None",
            "stop words of text": "stop_words holds something other than strings",
            "unknown analyzer": "an analyzer is not named module:function",
        },
        errors.InsufficientDataError: {"room": _ROOM},
        errors.InvalidDocumentsError: {
            "texts": "texts are no list, series, array or table of one column of documents; put "
            "them into a list",
        },
        errors.VocabularyError: {
            "analyzer of a model": "the analyzer that a model was made with is not given; use the "
            "option, or streamlda.load(path, analyzer=...)",
            "fingerprint": "the words are not those that the metadata was made with",
            "hashed": "words and hash bits of a vocabulary do not fit its kind",
            "kind": "the kind of a vocabulary must be given, learned, selected or hashed",
            "learned": "no word lies within the document frequencies; give more documents, or "
            "raise max_document_frequency (1.0 keeps all words)",
            "list": "a word list cannot be read; check the name",
            "metadata": "the metadata of a vocabulary is damaged",
            "names": "names are not those of all columns of a hashed vocabulary",
            "no words": "a word list has no word; put one on each line",
            "one string": "words are one string, and no list of words",
            "selection": "selection must be a mapping of plain JSON values that says how the words "
            "were selected; pass the record of the private selection",
            "twice": "a word list has a word twice; remove one of them",
            "utf8": "a word list is not UTF-8; convert the file",
            "word": "a word is empty, or no str",
        },
    }
)
fault, check = _FAULTS.make, _FAULTS.check
