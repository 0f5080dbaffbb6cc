"""Functions that torch has compiled ahead of time: captured, kept, loaded, and called where right."""
