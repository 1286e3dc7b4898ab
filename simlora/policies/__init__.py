"""The decisions of a system: one algorithm per file, over read-only views (`simlora.policies.views`)."""
