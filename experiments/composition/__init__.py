"""The system nobody has built yet: a search over the policy slots, judged on workloads that it has not seen."""
