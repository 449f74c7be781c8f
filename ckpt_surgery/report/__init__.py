"""Plans, listings and differences as rows and JSON; prints nothing."""
