"""A private selection of words as the tests of it make one, and its unit."""

from streamlda.privacy.selection import WordSelection


def make(z=4.0, delta=1e-6, d0=5, relation="add-remove"):
    return WordSelection(z, delta, max_words_per_document=d0, neighboring_relation=relation)


def one(made):
    """Return the weight 1 in steps of the grid."""
    steps = 1 / made.step
    assert steps == int(steps)
    return int(steps)
