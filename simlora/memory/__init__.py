"""What is resident: KV and adapters in a replica's HBM, and the cached KV of ended requests in HBM and on the host."""
