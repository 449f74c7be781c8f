"""What commands write as JSON."""
