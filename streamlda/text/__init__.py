"""Text to words, words to ids, ids to counts."""
