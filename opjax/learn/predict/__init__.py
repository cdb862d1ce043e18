"""Trained operators: saved, loaded, and evaluated on meshes of any size."""
