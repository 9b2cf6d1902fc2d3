"""Topic models: what is published, and what is done with it."""
