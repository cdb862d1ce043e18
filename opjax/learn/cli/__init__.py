"""Command lines: programs, their flags, and the three that are installed."""
