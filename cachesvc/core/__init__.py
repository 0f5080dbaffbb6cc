"""Pure values: no clock, no environment variables, no files, no torch."""
