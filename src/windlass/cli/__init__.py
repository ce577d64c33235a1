"""The `windlass` command: its entry point and exit codes, and a folder for each part of a command."""
