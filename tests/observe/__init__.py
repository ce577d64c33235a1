"""What operators see of a worker: events, logs, metrics, probes and the files in deploy/."""
