"""Parts of a corpus that are encoded apart, by several processes or machines, and joined."""
