"""The commands of `windlass`, one file for each command or group of commands."""
