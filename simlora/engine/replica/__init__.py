"""One replica: its loop, its requests, its KV cache and adapters, and how long its iterations take."""
