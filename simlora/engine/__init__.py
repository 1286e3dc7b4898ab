"""The clock: replicas, links and the cluster. The only room that imports SimPy."""
