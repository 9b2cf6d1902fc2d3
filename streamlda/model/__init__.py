"""Topic models, and all that users do with them."""

#: Hellinger distance beyond which topics differ. Of two halves of KOS, 20 Newsgroups and abstracts,
#: topics nearer than 0.5 nearly always have the same documents, and beyond 0.65 one pair of 882.
MAX_DISTANCE = 0.55
