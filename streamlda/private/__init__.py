"""Topics by differentially private sums."""
