"""From a plan to a published result: destinations, runs, shards, config files beside weights."""
