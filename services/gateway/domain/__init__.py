"""Who may do what, and how readings, ledger and inventory become one view."""
