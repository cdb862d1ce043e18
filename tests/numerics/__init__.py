"""Numbers that are too large, too small, too few, or the same."""
