"""Migration: what moves when replicas drift apart."""
