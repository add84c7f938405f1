"""An index: its format on disk, the building of it, and reading it back."""
