"""Operators by name: what a model is built from, and what it can do."""
