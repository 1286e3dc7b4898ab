"""All systems on all papers' workloads, in one world."""
