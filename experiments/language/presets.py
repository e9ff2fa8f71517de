"""nanoGPT's two settings for Tiny Shakespeare, as presets that name every switch.

                      nanogpt_cpu          nanogpt_gpu
    layers, heads     4, 4                 6, 6
    width             128                  384
    context           64                   256
    batch size        12                   64
    dropout           0                    0.2
    dtype             float32              bfloat16
    local steps       2,000                5,000
    public loss       1.88                 1.4697

Both use AdamW and a rate of 0.001 that falls to a tenth. They have one worker, and with
more of them each one has its own part of the text and takes as many local steps. Not
followed: the initial weights are Flax's own.

Reference: A. Karpathy, nanoGPT, 2022, https://github.com/karpathy/nanoGPT.
"""

import math

from olsgd_jax.training import Config, check_count
from olsgd_jax.types import Option

STEPS_PER_RECORD = 250

_BOTH: dict[str, Option] = {
    "dataset": "tiny_shakespeare",
    "partition": "contiguous",
    "model": "transformer",
    "strategy": "sync_sgd",
    "num_workers": 1,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "schedule": "warmup_cosine",
    "warmup_steps": 100,
    "final_fraction": 0.1,
    "momentum": 0.9,
    "beta2": 0.99,
    "clip_norm": 1.0,
    "weight_decay": 0.1,
    "decay_vectors": False,
}
_CPU: dict[str, Option] = {
    **_BOTH,
    "context": 64,
    "width": 128,
    "depth": 4,
    "num_heads": 4,
    "batch_size": 12,
    "dropout": 0.0,
}
_GPU: dict[str, Option] = {
    **_BOTH,
    "context": 256,
    "width": 384,
    "depth": 6,
    "num_heads": 6,
    "batch_size": 64,
    "dropout": 0.2,
    "dtype": "bfloat16",
}
NANOGPT = {"nanogpt_cpu": (_CPU, 2000), "nanogpt_gpu": (_GPU, 5000)}
"""Options and number of local steps by name."""


def nanogpt(name: str, sync_period: int = 10, **options: Option) -> Config:
    """Makes a config from a preset.

    Args:
      name: "nanogpt_cpu" or "nanogpt_gpu".
      sync_period: τ.
      **options: fields of the config that replace the preset's.
    """
    check_count("sync_period", sync_period)
    given, num_steps = NANOGPT[name]
    lengths = {
        "num_rounds": math.ceil(num_steps / sync_period),
        "evaluate_every": max(1, STEPS_PER_RECORD // sync_period),
    }
    return Config(**{**given, **lengths, "sync_period": sync_period, **options})
