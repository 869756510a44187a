"""A job in one line: what to run becomes a Job, and what became of it is told.

order.py       what somebody wants to run, as a Job                              pure
standing.py    how jobs stand: waiting and why, running, over                    pure
desk.py        submitting, finding, waiting, reading logs and cancelling, on any API server
"""
