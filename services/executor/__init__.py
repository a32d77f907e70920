"""Runs experiments on granted devices: engines as processes, and what measures them.

Answers start_experiment, cancel_experiment, fence_reservation and list_running of its node.
Publishes attempt_started, attempt_phase_changed, attempt_finished and executor_reported, and
passing progress. Renews and releases reservations at the scheduler. Owns its journal in SQLite,
the engines' processes and their logs, all in `<data_dir>/executor`.
"""
