"""Runs experiments on granted devices: engines as processes, and what measures them.

Answers start_experiment, cancel_experiment, fence_reservation, list_running and read_log of its
node; with the executors of other nodes, for one attempt over all of them, get_rank and start_rank.
Publishes attempt_started, attempt_phase_changed, attempt_finished and executor_reported, and
passing progress. Renews and releases reservations at the scheduler. Owns its journal in SQLite,
the engines' processes and their logs, all in `<data_dir>/executor`.
"""
