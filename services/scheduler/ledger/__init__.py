"""Reservations, devices and decisions in Postgres. Every SQL statement of this service is here."""
