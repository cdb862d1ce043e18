"""A resumable run: its folder, batches, training loop and processes."""
