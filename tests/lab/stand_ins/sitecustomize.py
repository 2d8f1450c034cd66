"""Loaded by every Python of the lab's engine: what a GPU build takes for granted, made inert for a CPU.

Three things, each applied when the module that it concerns is imported, so that other programs pay nothing:
torchvision is absent for transformers and inert for the engine; pinned memory and device events are no-ops (the KV
sender of the prefill side uses them on any device); the plain torch attention backend answers one graph question.
Nothing here changes what is scheduled, batched, sent or counted.
"""

import enum
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types


def hide_torchvision(module):
    module.is_torchvision_available = lambda: False
    module.is_torchvision_v2_available = lambda: False


def make_device_calls_inert(torch):
    if torch.cuda.is_available():
        return
    allocate = torch.empty
    torch.empty = lambda *size, pin_memory=False, **options: allocate(*size, **options)
    torch.cuda.Event = torch.cuda.Stream = Instant
    torch.cuda.current_stream = lambda *_, **__: Instant()
    # Asked by the recorder of expert loads.
    torch.cpu.is_current_stream_capturing, torch.cpu.empty_cache = (lambda: False), (lambda: None)


def answer_graph_question(module):
    backend = module.TorchNativeAttnBackend
    backend.get_cpu_graph_seq_len_fill_value = backend.get_cuda_graph_seq_len_fill_value = lambda _: 1


AFTER_IMPORT = {
    "transformers.utils.import_utils": hide_torchvision,
    "torch": make_device_calls_inert,
    "sglang.srt.layers.attention.torch_native_backend": answer_graph_question,
}


class Instant:
    """An event or stream of a device without a queue: everything has happened already."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def query(self):
        return True

    def elapsed_time(self, _):
        return 0.0

    def record_event(self, *_):
        return Instant()

    def record(self, *_):
        return None

    wait = wait_event = wait_stream = synchronize = record


class AfterImport(importlib.abc.MetaPathFinder):
    """Runs one function on a module right after it was executed, before anyone else sees it."""

    def find_spec(self, name, path=None, target=None):
        change = AFTER_IMPORT.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


class InertTorchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The image library that the engine imports for models with pictures: all names, nothing behind them."""

    class InterpolationMode(enum.Enum):
        NEAREST = "nearest"
        BILINEAR = "bilinear"
        BICUBIC = "bicubic"

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__ = [], "0.0.0"
        module.InterpolationMode = self.InterpolationMode
        module.__getattr__ = self.name
        return module

    @staticmethod
    def name(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

    def exec_module(self, module):
        """Nothing to run."""


sys.meta_path.insert(0, AfterImport())
sys.meta_path.append(InertTorchvision())
