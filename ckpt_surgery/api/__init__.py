"""The public functions, one module each, or one for a few that belong together."""
