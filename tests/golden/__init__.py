"""Golden vectors of the papers' original code, and a runner to compare with them."""
