"""Metadata of the package; settings of tools are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "seqrl" / "version.py").read_text())

EXTRAS = {
    "mujoco": ["mujoco==3.11.0", "gymnasium[mujoco]>=1.1"],
    "box2d": ["box2d>=2.3.10", "pygame-ce>=2.5"],
    "minigrid": ["minigrid>=3.0"],
    "pusht": ["gym-pusht>=0.1.8"],
    "popgym": ["popgym>=1.0.7"],
    "atari": ["ale-py>=0.12"],
    "metaworld": ["metaworld>=3.0", "mujoco==3.11.0"],
    "robotics": ["gymnasium-robotics>=1.4", "mujoco==3.11.0"],
    "dm-control": ["dm-control>=1.0.44", "shimmy>=2.0", "mujoco==3.11.0"],
    "old-gym": ["gym>=0.26.2", "pygame-ce>=2.5", "shimmy>=2.0"],
    "mo-gymnasium": ["mo-gymnasium>=1.3"],
    "crafter": ["crafter>=1.8.3"],
    "envpool": ["envpool>=1.2.5"],
    "robosuite": [  # all but robosuite 1.5.2 itself, which asks for a mink that asks for numpy 1
        "mujoco>=3.3,<3.4",
        "numba>=0.61",
        "scipy>=1.11",
        "opencv-python-headless>=4.9",
        "mink>=0.0.10,<1",
        "qpsolvers[quadprog]>=4.3.1",
    ],
    "gymnax": ["gymnax>=1.0.1", "pygame-ce>=2.5", "six"],  # which it imports and does not ask for
    "xland": ["xminigrid>=0.9.3"],
    "retro": ["stable-retro>=1.0.1", "opencv-python>=4.9"],
    "flash": ["flash-attn>=2.6"],
    "mamba": ["mamba-ssm>=2.2", "causal-conv1d>=1.4"],
    "deltanet": ["flash-linear-attention>=0.3"],
    "tensorboard": ["tensorboard>=2.17"],
    "wandb": ["wandb>=0.19"],
    "minari": ["pyarrow>=17"],
    "lerobot": ["pyarrow>=17", "av>=13"],
    "video": ["imageio-ffmpeg>=0.5"],
    "completion": ["argcomplete>=3.2"],
    "onnx": ["onnx>=1.16", "onnxscript>=0.1", "onnxruntime>=1.18"],
    "ray": ["ray>=2.60"],
    "sweep": ["optuna==5.0.0"],
    "slurm": ["submitit==1.5.4"],
    "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.8", "mkdocstrings[python]>=1.0"],
}
EXTRAS["test"] = [
    "pytest>=8",
    "pytest-xdist>=3.6",
    "pytest-timeout>=2.3",
    "hypothesis>=6.100",
    "beartype>=0.19",
    "scipy>=1.11",
    *EXTRAS["onnx"],
    *EXTRAS["tensorboard"],
    *EXTRAS["completion"],
    *EXTRAS["lerobot"],
    *EXTRAS["ray"],
    *EXTRAS["sweep"],
    *EXTRAS["slurm"],
    "nbclient>=0.10",
    "ipykernel>=6.29",
]
EXTRAS["dev"] = [
    *EXTRAS["test"],
    *EXTRAS["docs"],
    "build>=1.2",
    "codespell>=2.3",
    "import-linter>=2.16",
    "mypy>=1.13",
    "pre-commit>=3.8",
    "ruff>=0.8",
]

setup(
    name="seqrl",
    version=VERSION.group(1) if VERSION else "0",
    description="Policies that remember: off-policy RL and imitation on long sequences",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["seqrl", "seqrl.*"]),
    package_data={"seqrl": ["py.typed", "configs/templates/*.json"]},
    install_requires=[
        "torch>=2.13",
        "gymnasium>=1.1,<2",
        "numpy>=2.0",
        "h5py>=3.11",
        "tensorboardX>=2.6.2",
        "accelerate>=1.0",
        "termcolor>=2.4",
        "tqdm>=4.66",
        "safetensors>=0.4.5",
        "pydantic>=2.9",
        "jaxtyping>=0.2.34",
        "matplotlib>=3.9",
        "imageio>=2.34",
        "pillow>=10.1",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["seqrl = seqrl.__main__:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
