"""Networks: timestep encoders, sequence encoders, heads and distributions. Plain arguments, no configuration."""

from seqrl.models import denoisers, distributions, image_cores, image_randomizers, sequence_encoders, timestep_encoders

__all__ = ["denoisers", "distributions", "image_cores", "image_randomizers", "sequence_encoders", "timestep_encoders"]
