"""The configured cluster on a wall clock, behind vLLM's HTTP API: `simlora-serve`."""
