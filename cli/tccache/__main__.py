"""`python -m tccache`."""

from tccache.main import entry

entry()
