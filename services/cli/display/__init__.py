"""What people read: tables, progress, results."""
