"""Short representations of large results: what they say, as text and as HTML."""
