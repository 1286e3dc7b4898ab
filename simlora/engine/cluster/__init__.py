"""The fleet of replicas, and what acts on all of them: dispatch, placement, migration, autoscaling, faults."""
