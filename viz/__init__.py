"""Views drawn from nothing but a trace: live terminal view, figures, web replay and notebook widget."""
