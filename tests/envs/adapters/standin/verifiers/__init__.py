"""The parts of verifiers 0.3.1 that the adapter's program calls, with that package's names and shapes, and no more."""

import importlib

__version__ = "0.3.1"


def load_environment(env_id, **arguments):
    return importlib.import_module(env_id).load_environment(**arguments)
