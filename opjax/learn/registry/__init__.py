"""Registry of operators: how models are built from options, and what they support."""
