"""What a system decides: one algorithm a file, over read-only views (`simlora.policies.views`)."""
