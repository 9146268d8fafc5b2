"""The building blocks of a decoder, in plain torch."""
