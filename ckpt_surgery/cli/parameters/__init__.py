"""Options and arguments of commands."""
