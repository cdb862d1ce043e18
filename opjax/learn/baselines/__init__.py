"""What predicts without an operator: mean field, nearest case, POD with RBF.

All are fitted in seconds to the training cases, and say whether an operator is needed.
"""
