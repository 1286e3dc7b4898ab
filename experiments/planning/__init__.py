"""How near simlora-plan comes to an exhaustive grid, on deployments that are made up."""
