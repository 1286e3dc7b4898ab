"""What is resident in a replica's HBM: KV and adapters in one pool."""
