"""Completion of commands, options and choices in a shell."""
