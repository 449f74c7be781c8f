"""Plan to checkpoint: tasks, workers, executors, staging and publication."""
