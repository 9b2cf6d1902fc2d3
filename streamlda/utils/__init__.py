"""Utilities that know nothing of topics: the system, threads, locks, arrays of states."""
