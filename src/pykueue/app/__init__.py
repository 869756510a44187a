"""The composition root: the package that builds servers and clocks and connects the other packages.

cluster_manager       a manager for any cluster; the populator. Imports nothing of kubeserver
ports                 what a manager serves on ports of its own
options               the Configuration as the options of each package
state_dump_signal     the scheduler's state in the log at SIGUSR2
server                the parts of the embedded API server
in_process_webhooks   the webhooks as functions of the API server's process
embedded_manager      a manager and a runner in the API server's process

Import the modules, not this package: a program loads only what it runs.
"""
