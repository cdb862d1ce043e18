"""Folders and files of every release, which later ones read."""
