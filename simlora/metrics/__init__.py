"""What happened: told by the engine, telling nobody."""
