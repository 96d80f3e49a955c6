"""Settings for all tests."""

import torch

# The models of the tests are too small for two threads: handing work over costs more than doing it.
torch.set_num_threads(1)
