"""What servers of every kind keep to: where they listen, who may ask, and how much a request may bring."""
