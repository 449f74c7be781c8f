"""Where output goes."""
