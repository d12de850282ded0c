"""Frames of every kind become pictures of one kind, and files are whole or not there."""

import importlib.util

import imageio.v3 as imageio
import numpy as np
import pytest

from seqrl.core.errors import ConfigError, DataError
from seqrl.core.files import is_temporary
from seqrl.rollout.video import VideoWriter, as_picture, captioned, check_video_suffix, fitted, side_by_side

GRAY = np.array([[0, 51], [102, 255], [3, 4], [5, 6]], np.uint8)
BIG = np.arange(5 * 6, dtype=np.uint8).reshape(5, 6)
COLOUR = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


# ------------------------------------------------------------------------------------------- pictures
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (GRAY, np.stack([GRAY] * 3, -1)),
        (GRAY[..., None], np.stack([GRAY] * 3, -1)),
        (GRAY[None], np.stack([GRAY] * 3, -1)),
        (COLOUR, COLOUR),
        (COLOUR.astype(np.int64), COLOUR),
        (COLOUR.astype(np.float32), COLOUR),
        (COLOUR / 255, COLOUR),
        (np.moveaxis(COLOUR, -1, 0), COLOUR),
        (np.concatenate([COLOUR, np.full((4, 6, 1), 9, np.uint8)], -1), COLOUR),
        (np.stack([0 * BIG, 0 * BIG, 0 * BIG, BIG]), np.stack([BIG] * 3, -1)),
        (GRAY > 50, np.stack([255 * (GRAY > 50)] * 3, -1)),
        (np.array([[np.nan, 300.0, -5.0]] * 3), np.array([[[0] * 3, [255] * 3, [0] * 3]] * 3)),
    ],
    ids=["gray", "last", "first", "rgb", "int", "float", "unit", "channels_first", "rgba", "stack", "bool", "wild"],
)
def test_any_frame_becomes_uint8_of_three_channels(frame, expected):
    picture = as_picture(frame)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, expected)


def test_limits_are_black_and_white():
    picture = as_picture(np.array([[2.0, 3.0, 4.0, 9.0]] * 2), (2.0, 4.0))
    assert picture[0, :, 0].tolist() == [0, 128, 255, 255]


@pytest.mark.parametrize("frame", [None, "text", np.zeros(3), np.zeros((2, 2, 2, 3)), np.zeros((0, 4, 3))])
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(DataError, match="a frame must be"):
        as_picture(frame)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((32, 32), (256, 256)),
        ((60, 156), (120, 312)),
        ((240, 9), (240, 9)),
        ((100, 640), (100, 640)),
        ((641, 3), (321, 2)),
        ((7, 1400), (3, 467)),
    ],
)
def test_pictures_are_neither_tiny_nor_huge(shape, size):
    assert fitted(np.zeros((*shape, 3), np.uint8)).shape == (*size, 3)


def test_a_caption_is_text_below_the_picture():
    picture = np.full((20, 200, 3), 7, np.uint8)
    both = captioned(picture, ("one", "two"))
    np.testing.assert_array_equal(both[:20], picture)
    assert len(both) > 40
    assert (both[20:] > 200).any()
    assert captioned(picture, ("other", "two")).shape == both.shape
    assert captioned(picture, ("long " * 99, "")).shape == both.shape


def test_pictures_of_several_sizes_stand_in_a_grid():
    squares = [np.full((10, 10, 3), 100 + i, np.uint8) for i in range(5)]
    grid = side_by_side(squares)
    assert grid.shape == (24, 38, 3)
    assert {100 + i for i in range(5)} <= set(np.unique(grid))
    strips = side_by_side([np.full((5, 300, 3), 9, np.uint8), np.full((4, 200, 3), 8, np.uint8)])
    assert strips.shape == (14, 300, 3)
    assert side_by_side(squares[:1]) is squares[0]


# ---------------------------------------------------------------------------------------------- files
def test_a_gif_holds_every_frame_in_the_size_of_the_first(tmp_path):
    file = tmp_path / "new" / "a.gif"
    with VideoWriter(file, fps=20) as video:
        for i, size in enumerate([(8, 11), (8, 11), (4, 20), (9, 9)]):
            video.add(np.full((*size, 3), 60 * i, np.uint8))
        assert not file.exists()
    assert video.num_frames == 4
    assert [p.name for p in file.parent.iterdir()] == ["a.gif"]
    frames = imageio.imread(file, index=None)
    assert frames.shape == (4, 8, 11, 3)
    assert frames[:, 0, 0, 0].tolist() == pytest.approx([0, 60, 120, 180], abs=4)
    assert int(frames[2, 6, 0, 0]) == pytest.approx(24, abs=4)  # below the smaller picture, not what was there before
    assert imageio.immeta(file)["duration"] == 50
    assert imageio.immeta(file)["loop"] == 0


def test_what_a_kill_leaves_of_an_mp4_is_known_as_temporary(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="mp4 needs the extra 'video'")
    with VideoWriter(tmp_path / "a.mp4") as video:
        video.add(np.zeros((16, 16, 3), np.uint8))
        assert [is_temporary(p.name) for p in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_video_that_fails_leaves_nothing(tmp_path, suffix):
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg", reason="mp4 needs the extra 'video'")
    file = tmp_path / f"a{suffix}"
    file.write_text("before")

    def fail():
        with VideoWriter(file) as video:
            video.add(np.zeros((16, 16, 3), np.uint8))
            raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == [file.name]
    assert file.read_text() == "before"


def test_an_mp4_of_odd_size_holds_every_frame(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="mp4 needs the extra 'video'")
    with VideoWriter(tmp_path / "a.mp4", fps=10) as video:
        for i in range(6):
            video.add(np.full((33 + i % 2, 51 + 7 * i, 3), 40 * i, np.uint8))
    frames = imageio.imread(tmp_path / "a.mp4", plugin="FFMPEG", index=None)
    assert frames.shape == (6, 34, 52, 3)
    assert frames[:, 5, 5, 0].tolist() == pytest.approx([0, 40, 80, 120, 160, 200], abs=6)
    assert imageio.immeta(tmp_path / "a.mp4", plugin="FFMPEG")["fps"] == 10


def test_mp4_without_its_extra_is_a_message(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "imageio_ffmpeg" else real(name))
    with pytest.raises(ConfigError, match=r"pip install 'seqrl\[video\]'"):
        check_video_suffix(".mp4")
    check_video_suffix(".gif")
    with pytest.raises(ConfigError, match=r"\.gif or \.mp4"):
        check_video_suffix(".avi")
