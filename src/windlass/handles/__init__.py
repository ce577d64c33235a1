"""What a program gets back to read and to act on: handles for a job, a batch, a graph and a schedule."""
