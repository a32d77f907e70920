"""Turns tuning tasks into experiments and sees each of them through to its one outcome.

Consumes reservation facts of the scheduler, attempt facts and reports of executors, and
`results.experiment_summarized`; publishes `orchestrator.task_*` and `orchestrator.experiment_*`;
answers submit, cancel, pause and resume, and the queries about tasks and experiments. Owns tasks,
experiments and attempts in Postgres; runs on the platform's host, one instance of it.
"""
