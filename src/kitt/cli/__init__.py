"""The command `kitt`."""
