"""Baselines without an operator: mean field, nearest case, and POD with RBF.

All are fitted to the training cases in seconds. They show whether an operator is
needed.
"""
