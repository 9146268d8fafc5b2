"""How fast the engine's own code is: ``python -m sim.benchmarks`` (or ``make bench``)."""
