"""Stores what experiments measured and what their GPUs did meanwhile.

Consumes samples of GPUs and engines, and `executor.attempt_finished`; publishes
`results.experiment_summarized`;
answers `results.{get_summary,series,report}`. Owns samples, attempts and summaries in Postgres;
runs on the platform's host, any number of instances beside each other.
"""
