"""Re-creates failures in miniature, on real processes:
scenarios, the runner, and the recorder that makes `sample_logs/`."""
