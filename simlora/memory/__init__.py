"""What is resident: KV and adapters in a replica's HBM, and the KV that outlives its requests there and on the host."""
