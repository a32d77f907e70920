"""What runs in the NVML child process, and there alone: a call here may hang in the driver.

`__main__.py` starts it, `server.py` answers requests by `jobs.py`; the rest is what a job reads.
"""
