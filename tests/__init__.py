"""The tests mirror the packages; what they share lies beside this file."""
