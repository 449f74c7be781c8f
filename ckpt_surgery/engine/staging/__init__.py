"""Writing a checkpoint beside its destination, and publishing it in one step."""
