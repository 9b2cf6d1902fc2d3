"""The private route: documents to clipped sums, noisy sums to topics, and the ledger between."""
