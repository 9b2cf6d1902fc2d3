"""A run: settings, a source, one pipeline, and where it continues after it was cut short."""
