"""What is to be learned: samples, loss, evaluation, and what it leaves on disk."""
