"""Which configuration of a task is tried next: decided by its space and its history alone, so that
a restart goes on as if there had been none.
"""
