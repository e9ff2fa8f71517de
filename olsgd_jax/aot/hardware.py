"""Figures of the accelerators to compile for, and a GPU's figures in XLA's format."""

from typing import NamedTuple


class Gpu(NamedTuple):
    """What the compiler needs to know about a GPU; sizes are in bytes."""

    name: str
    capability: tuple[int, int]  # major, minor
    cores: int
    fpus_per_core: int
    shared_memory_per_core: int
    shared_memory_per_block: int  # the maximum that a kernel may opt in to
    bandwidth: int  # bytes per second
    l2_cache: int
    clock_ghz: float
    memory: int
    peak_flops: float  # per second, for bfloat16 matrix products, by its data sheet
    topology: str = "1x1x8"  # the default: slices x hosts x devices


class Tpu(NamedTuple):
    """What the planner needs to know about a TPU; libtpu knows the rest."""

    name: str  # libtpu's name
    peak_flops: float  # of one device, as for a GPU
    topology: str  # the default shape of a slice


GPUS = {
    "a100": Gpu(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 167936, 166912,
        2_039_040_000_000, 41943040, 1.41, 85100068864, 312e12,
    ),
    "h100": Gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 233472, 232448,
        3_352_320_000_000, 52428800, 1.98, 84942979072, 989e12,
    ),
    "b200": Gpu(
        "NVIDIA B200", (10, 0), 148, 128, 233472, 232448,
        7_672_320_000_000, 132644864, 1.965, 191514411008, 2250e12,
    ),
}  # fmt: skip
"""GPUs by the name of their target; the figures are those of SXM boards."""

TPUS = {
    "v5e": Tpu("v5e", 197e12, "2x4"),
    "v5p": Tpu("v5p", 459e12, "2x2x2"),
    "v6e": Tpu("v6e", 918e12, "2x4"),
    "7x": Tpu("tpu7x", 1153e12, "2x2x1"),  # a device is half a chip
}

HARDWARE: dict[str, Gpu | Tpu] = {**GPUS, **TPUS}
"""Every accelerator by the name of its target."""


def target_config(gpu: Gpu) -> str:
    """Writes a GPU's figures in XLA's format, a GpuTargetConfigProto as text."""
    major, minor = gpu.capability
    return f"""
      gpu_device_info {{
        threads_per_block_limit: 1024
        threads_per_warp: 32
        shared_memory_per_block: 49152
        shared_memory_per_core: {gpu.shared_memory_per_core}
        shared_memory_per_block_optin: {gpu.shared_memory_per_block}
        threads_per_core_limit: 2048
        core_count: {gpu.cores}
        fpus_per_core: {gpu.fpus_per_core}
        block_dim_limit_x: 2147483647
        block_dim_limit_y: 65535
        block_dim_limit_z: 65535
        memory_bandwidth: {gpu.bandwidth}
        l2_cache_size: {gpu.l2_cache}
        clock_rate_ghz: {gpu.clock_ghz}
        device_memory_size: {gpu.memory}
        cuda_compute_capability {{ major: {major} minor: {minor} }}
        registers_per_core_limit: 65536
        registers_per_block_limit: 65536
      }}
      platform_name: "CUDA"
      dnn_version_info {{ major: 9 minor: 10 }}
      device_description_str: "{gpu.name}"
    """
