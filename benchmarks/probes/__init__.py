"""Probes: is a model's call ever answered wrongly by a function compiled ahead of time?"""
