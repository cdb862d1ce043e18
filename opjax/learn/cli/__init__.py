"""Command lines: programs, their flags, and those that are installed."""
