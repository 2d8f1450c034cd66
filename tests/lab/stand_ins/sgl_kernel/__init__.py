"""Takes the place of a compiled kernel package that does not exist for this CPU: every name is there, none computes.

The engine imports the names at start; the pure torch paths that the lab configures never call one. If one is called,
it says so and the server fails, which is what a lab wants.
"""

import importlib.machinery
import sys
import types

__version__ = "0.0.0"
__path__: list[str] = []


class Absent:
    """A kernel that is not here. Usable as a value, a type or a base class; never as a function."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *_, **__):
        raise NotImplementedError(f"{self.__name__}: no kernel for this CPU; the lab must not need it")

    def __mro_entries__(self, _):
        return (object,)


def absent(package):
    def get(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{package}.{name}")

    return get


__getattr__ = absent(__name__)


class Submodules:
    """Answers `import sgl_kernel.anything` with a module of the same kind."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = absent(spec.name)
        return module

    def exec_module(self, module):
        """Nothing to run: names are made when they are asked for."""


sys.meta_path.append(Submodules())
