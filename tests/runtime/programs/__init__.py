"""Small programs whose jobs run in child processes."""
