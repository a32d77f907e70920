"""Where every GPU-millisecond went: what events report of devices and reservations (`facts`), the
hours that follow from that and from samples (`hours`), and the reports on them (`reports`).
"""
