"""Migration: which requests move when the loads of replicas diverge."""
