"""The clock, the replica and its parts, and the cluster."""
