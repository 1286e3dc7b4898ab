"""What a policy promises, checked at every decision of real runs: `simlora-check my_module.MyPolicy`."""
