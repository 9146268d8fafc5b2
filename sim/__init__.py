"""The same engine on a modelled GPU: a backend that computes nothing and predicts how long each step would take."""
