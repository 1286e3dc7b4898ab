"""Whether simlora-validate finds what differs: servers that are simulated, with one part of them longer or shorter."""
