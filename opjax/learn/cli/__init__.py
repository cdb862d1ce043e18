"""Command lines: programs, their flags, and the installed commands."""
