"""Attention layers: in a basis, among points, on subdomains."""
