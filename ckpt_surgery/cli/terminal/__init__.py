"""Output to the terminal."""
