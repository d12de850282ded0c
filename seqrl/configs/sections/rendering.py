"""Section of the videos that a run makes of its evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from seqrl.configs.section import Section


class RenderingSection(Section):
    """Videos of evaluation episodes, in videos/, made while the run goes on. What fails is a warning."""

    enabled: bool = Field(False, description="Make videos.")
    every_n_epochs: PositiveInt = Field(10, description="Epochs between two videos; the last epoch always has one.")
    episodes: PositiveInt = Field(2, description="Episodes per video; several tasks are shown side by side.")
    format: Literal["gif", "mp4"] = Field("gif", description="mp4 needs the extra seqrl[video].")
    fps: PositiveFloat = Field(15.0, le=50.0, description="Frames shown per second.")
    every_n_frames: PositiveInt = Field(1, description="Draw every n-th step, besides the last one of an episode.")
    max_frames: PositiveInt = Field(400, description="A video ends after this many frames.")
    keep: Literal["all", "best"] = Field(
        "all", description="Every video, or only that of the best evaluation so far (by success, else by return)."
    )
