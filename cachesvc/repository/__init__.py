"""Bundles in a store: segments, packs, union, publication."""
