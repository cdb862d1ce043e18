"""Learning tasks: samples, loss, evaluation, and files of the results."""
