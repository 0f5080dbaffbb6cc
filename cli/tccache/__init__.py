"""The command `tccache`."""
