"""The command that pulls packed indexes."""
