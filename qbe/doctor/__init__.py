"""What this machine and this installation are, and what they lack."""
