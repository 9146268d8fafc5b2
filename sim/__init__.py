"""The same engine on a modelled GPU: a backend that computes nothing and predicts each step's time."""
