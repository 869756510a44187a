"""The whole system in one process, on a virtual clock, from a seed: chaos, then healing, then questions.

The production server, controllers and scheduler run unchanged; only the four ports differ: the clock reads a loop whose
time jumps (`loop`), chance is the seed's, requests pass through `faults`, and pods are played (`worlds`). What was
stored is judged afterwards by `checkers`, which share no code with the product.

    loop.py      asyncio without waiting
    server.py    the embedded server on that clock, and every revision it stored
    faults.py    what can go wrong between a manager and its server
    worlds.py    cohorts, queues and work, drawn from the seed; the people and controllers around them
    checkers.py  what must hold of any stored history
    story.py     one seed from beginning to end
"""
