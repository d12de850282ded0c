"""The nets that read observations, by hand: an image and a vector, an image randomizer, and one vector a step.

python examples/simple_obs_nets.py
python examples/simple_obs_nets.py --core impala --size 64 --set modalities.joints.d_output=32
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch

from seqrl.configs import apply_overrides, config_factory
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.timestep_encoders.base import build_timestep_encoder
from seqrl.scripts import script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--size", type=int, default=84, help="height and width of the image (default %(default)s)")
    p.add_argument("--core", default="nature", help="convolutions: nature, impala, drq or resnet (default %(default)s)")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the encoder")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Build an encoder, and show it a batch."""
    args = parser().parse_args(argv)

    # What is observed: name -> shape and dtype. Categories have their sizes in nvec and are read one-hot.
    obs = {
        "camera": ObsSpec((args.size, args.size, 3), "uint8"),
        "joints": ObsSpec((7,)),
        "tool": ObsSpec((), "int64", (4,)),
    }

    # How it is read; an entry that is not named is an image if it looks like one, else a vector.
    camera = {"type": "image", "core": {"type": args.core}, "randomizers": [{"type": "shift"}], "d_output": 128}
    values: dict[str, Any] = {"type": "multimodal", "modalities": {"camera": camera}, "d_output": 64}
    apply_overrides(values, args.set)
    section = config_factory("bc", {"observation": {"timestep_encoder": values}}).observation.timestep_encoder

    # Widths of the previous action and reward come last; 0 does not read them.
    encoder = build_timestep_encoder(*section.choice(), obs, 2, 0)
    print("parameters:", sum(p.numel() for p in encoder.parameters()))

    # Two sequences of five steps.
    seen = {
        "camera": torch.randint(256, (2, 5, args.size, args.size, 3), dtype=torch.uint8),
        "joints": torch.randn(2, 5, 7),
        "tool": torch.randint(4, (2, 5)),
    }
    inputs = SeqInputs(seen, torch.zeros(2, 5, 2), torch.zeros(2, 5), torch.arange(5).expand(2, 5))
    print("embeddings:", tuple(encoder(inputs).shape))

    # Images are shifted in training alone.
    for mode in (True, False):
        encoder.train(mode)
        print(
            "the same twice in", "training:" if mode else "evaluation:", torch.equal(encoder(inputs), encoder(inputs))
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
