"""Where a checkpoint is written before it is published, all at once."""
