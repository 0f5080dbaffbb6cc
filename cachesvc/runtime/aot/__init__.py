"""Functions that torch has compiled ahead of time: captured, kept, loaded, called where right."""
