"""One resumable run: its folder, its batches, its loop and its processes."""
