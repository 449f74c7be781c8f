"""What commands take: options and arguments."""
