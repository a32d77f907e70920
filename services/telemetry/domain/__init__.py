"""What an agent decides without touching anything: parsing, made-up load, health, the schedule."""
