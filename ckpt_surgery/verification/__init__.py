"""Write the record of a checkpoint's origin, and read written checkpoints back."""
