"""Changing an index that is built: papers added, replaced and deleted, room taken back."""
