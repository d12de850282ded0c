"""Show what is installed, which devices torch sees, and which kernels are used and why."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from seqrl.core.extras import install_command
from seqrl.scripts._script import script
from seqrl.version import __version__

CORE = (
    "torch", "gymnasium", "numpy", "h5py", "tensorboardX", "accelerate", "termcolor", "tqdm", "safetensors", "pydantic",
    "jaxtyping", "matplotlib", "imageio", "pillow",
)  # fmt: skip
OPTIONAL = {
    "mujoco": "mujoco", "box2d": "Box2D", "minigrid": "minigrid", "popgym": "popgym", "atari": "ale_py",
    "metaworld": "metaworld", "robotics": "gymnasium_robotics", "dm-control": "dm_control", "pusht": "gym_pusht",
    "mo-gymnasium": "mo_gymnasium", "old-gym": "gym", "crafter": "crafter", "envpool": "envpool",
    "robosuite": "robosuite", "gymnax": "gymnax", "xland": "xminigrid", "retro": "stable_retro",
    "flash": "flash_attn", "mamba": "mamba_ssm", "deltanet": "fla", "tensorboard": "tensorboard", "wandb": "wandb",
    "minari": "pyarrow", "lerobot": "av", "video": "imageio_ffmpeg", "completion": "argcomplete", "onnx": "onnx",
    "ray": "ray", "sweep": "optuna", "slurm": "submitit",
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl doctor", description=__doc__)
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Look around; the exit code is 1 if a core package is missing."""
    args = parser().parse_args(argv)
    packages = {name: _version(name) for name in CORE}
    report: dict[str, Any] = {
        "seqrl": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        "packages": {name: found or "MISSING" for name, found in packages.items()},
        "devices": _devices(),
        "kernels": _kernels(),
        "extras": {
            name: "installed" if importlib.util.find_spec(module) else f"not installed ({install_command(name)})"
            for name, module in OPTIONAL.items()
        },
    }
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        for title, content in report.items():
            if isinstance(content, dict):
                width = max(map(len, content))
                print(title + "\n" + "\n".join(f"  {k:<{width}}  {v}" for k, v in content.items()))
            else:
                print(f"{title}: {content}")
    return 0 if all(packages.values()) else 1


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> dict[str, str]:
    import torch

    devices = {"cpu": f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"}
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        memory = properties.total_memory / 2**30
        devices[f"cuda:{i}"] = f"{properties.name}, {memory:.0f} GiB, capability {properties.major}.{properties.minor}"
    if not torch.cuda.is_available():
        devices["cuda"] = "none: " + ("torch is a CPU build" if torch.version.cuda is None else "no GPU or no driver")
    return devices


def _kernels() -> dict[str, str]:
    """Return which implementation each part uses, and why."""
    import torch

    from seqrl.models.sequence_encoders.attention.flash import flash_problem
    from seqrl.models.sequence_encoders.kernels import delta_kernel
    from seqrl.models.sequence_encoders.mamba import kernel_problem

    is_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if is_gpu else "cpu")
    no_flash, no_mamba = flash_problem(device), kernel_problem(device)
    sdpa = "flash or memory-efficient kernel" if is_gpu else "fused kernel for the CPU"
    return {
        "attention": f"auto is {'PyTorch SDPA' if no_flash else 'flash-attn in half precision, else PyTorch SDPA'}, "
        f"its {sdpa}; windows block by block",
        "flash-attn": f"not used: {no_flash}" if no_flash else "used with train.precision bf16 or fp16",
        "flex": "used for clipped and own scores"
        if is_gpu
        else "not used: no gradient on a CPU; plain PyTorch instead",
        "mamba-ssm": f"not used: {no_mamba}; plain PyTorch instead" if no_mamba else "used in training",
        "flash-linear-attention": "used in training in half precision"
        if delta_kernel(torch.empty((), dtype=torch.bfloat16, device=device))
        else "not used: it needs an NVIDIA GPU (on Hopper with Triton 3.7.1) and pip install 'seqrl[deltanet]'; plain "
        "PyTorch instead",
        "optimizer": "fused AdamW or Adam",
        "compile": "off",
    }


if __name__ == "__main__":
    sys.exit(main())
