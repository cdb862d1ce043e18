"""Training, resuming, comparing and predicting with operators, on any data."""
