"""From a plan to a checkpoint: tasks, workers, executors, staging and publication."""
