"""The hands: read, ask, apply once.

scheduler   wakes, runs cycles on the memory, carries the decisions out, keeps the bookings
workload    asks `lifecycle.step` what is due for one Workload and writes it
writing     the one place where changes of a Workload become requests
"""
