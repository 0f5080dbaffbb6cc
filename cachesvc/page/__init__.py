"""The page of a bench: one file with tables and charts, to be opened, sent and printed."""
