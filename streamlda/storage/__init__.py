"""States, checkpoints and projections in files."""
