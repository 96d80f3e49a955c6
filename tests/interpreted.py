"""Kernels in a child: as triton's interpreter runs them, and on a GPU (triton asks once for all which it is)."""

import forked
import pytest
import torch

DEVICES = ["interpreter", pytest.param("cuda", marks=pytest.mark.gpu)]

# Before the program: sys.argv has where the cases are, the device, and where the results go.
INTERPRETER = """
import sys, torch
for name in [name for name in sys.modules if name.startswith("triton") and not name.startswith("triton._C")]:
    del sys.modules[name]  # torch's compiler has imported it, and it has asked
from triton.runtime import interpreter
patch = interpreter._patch_lang_tensor
def patch_further(tensor, scope):  # numpy 2.4 no longer takes an array of one number for that number
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())
interpreter._patch_lang_tensor = patch_further
"""


def results(program, cases, directory, device):
    """What the program found for the cases, on the CPU."""
    torch.save(cases, directory / "cases")
    torch_device, environment = ("cuda", {}) if device == "cuda" else ("cpu", {"TRITON_INTERPRET": "1"})
    given = (INTERPRETER + program, directory / "cases", torch_device, directory / "results")
    code = forked.run(*given, output=directory / "output", environment=environment, seconds=300)
    assert code == 0, (directory / "output").read_text()
    return torch.load(directory / "results", map_location="cpu")
