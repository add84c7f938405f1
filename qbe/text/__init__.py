"""From an abstract as one string to sentences."""
