"""A system that no paper has: a search over the policy slots, judged on workloads that it has not seen."""
