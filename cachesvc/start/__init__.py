"""Use cases in a running process."""
