"""The one table of settings, and what is made of it."""
