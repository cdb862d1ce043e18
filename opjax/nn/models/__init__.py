"""Models: operators between functions, all called alike."""
