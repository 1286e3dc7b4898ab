"""What arrives: every workload is a small class with `build(seed) -> Trace`.

Put together from arrivals, popularity and lengths (synthetic, functions, conversations, per_adapter, production), or
read from traces that others have published, which `catalogue` lists; `facts` and `reuse` say what a trace is like, and
`export` writes one. `logs` makes one of what other tools have logged.
"""
