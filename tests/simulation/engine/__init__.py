"""The whole system in one process, on a virtual clock, from a seed: chaos, then healing, then questions.

The production server, controllers and scheduler run unchanged; only the four ports differ: the clock reads a loop whose
time jumps (`loop`), chance is the seed's, requests pass through `faults`, and pods are played (`owners`). What was
stored is judged afterwards by `checkers`, which share no code with the product.

    loop.py      asyncio without waiting; processes that stand still
    server.py    the embedded server on that clock, and every revision it stored
    faults.py    what can go wrong between a manager and its server, and with the whole
    traits.py    the features, gates and configuration of a run
    worlds.py    cohorts, queues and work, drawn from the seed
    user_actions.py  what users do meanwhile, drawn as well
    users.py     the users
    owners.py    the controllers around the manager
    managers.py  a manager as a process
    checkers.py  what must hold of any stored history
    simulation_run.py  one seed from beginning to end
"""
