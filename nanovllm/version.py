"""The version, where all of the package may ask for it."""

__version__ = "0.1.0"
