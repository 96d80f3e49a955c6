"""Sizes that the kernels work in. The planner counts by them too, so this module imports no torch."""

# The loss over a vocabulary goes chunk by chunk. On a CPU 16 MB of logits stay near the processor …
CHUNK_NUMBERS = 1 << 22

# … but a product of few rows is slow, and each chunk adds to the whole matrix's gradient.
CHUNK_TOKENS = 256
GPU_CHUNK_NUMBERS = 1 << 28

# Rows of a gradient that are added at a time, where it has another precision than its factors.
BLOCK_ROWS = 8_192

# Queries at a time in attention with dropout: shorter ones waste less, longer ones multiply faster.
STRETCH = 96
NEWTON_SCHULZ_STEPS = 5  # of Muon, towards an orthogonal matrix
KERNEL_MULTIPLE = 8  # a GPU's attention kernels want heads whose width is a multiple of it
