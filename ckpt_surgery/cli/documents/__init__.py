"""JSON documents of commands."""
