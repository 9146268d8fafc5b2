"""What happened: the events of a run, and everything that reads them."""
