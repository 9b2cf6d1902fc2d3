"""A run: settings, a source, one pipeline, and where it goes on after it was cut short."""
