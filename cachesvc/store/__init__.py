"""A flat key-value place: the contract, its drivers and its wrappers."""
