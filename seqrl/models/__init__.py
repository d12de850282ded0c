"""Networks: timestep encoders, sequence encoders, heads and distributions. Plain arguments, no configuration."""

from seqrl.models import distributions, sequence_encoders, timestep_encoders

__all__ = ["distributions", "sequence_encoders", "timestep_encoders"]
