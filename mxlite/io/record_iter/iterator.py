"""mx.io.ImageRecordIter."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core.disk import schema
from ...core.errors import FormatError, StateError
from ...core.log import Log
from ...ndarray import array, load, NDArray, save
from ...ndarray.operators.creation import sharing
from ..image_codec import pillow
from ..iterator import DataBatch, DataDesc, DataIter
from .decoder import Decoder, RecordDecoder
from .feeder import Begun, Feeder, images_mean
from .options import Options, parse_options, ReadOptions
from .source import Records

_log = Log(__name__)


class RecordIter(DataIter):
    """Base: batches of images made ahead of their use by threads, as `options` and `decoder` say."""

    def __init__(
        self, options: ReadOptions, make_decoder: Callable[[Records], RecordDecoder], dtype: str
    ) -> None:
        o = self.options = options
        super().__init__(o.batch_size)
        self._feeder: Feeder | None = None
        records = Records(o)
        try:
            decoder = make_decoder(records)
        except BaseException:
            records.close()
            raise
        n = o.batch_size
        self.provide_data = [DataDesc(o.data_name, (n, *o.data_shape), dtype)]
        self.provide_label = [DataDesc(o.label_name, (n,) if decoder.width == 1 else (n, decoder.width))]
        self._feeder = Feeder(o, records, decoder, dtype)
        self._feeder.go(0, 0)
        self._present: Begun | None = None
        if o.verbose:
            _log.info("%s: %s, %d threads decode", type(self).__name__, o.path_imgrec, o.preprocess_threads)

    # -- moving --------------------------------------------------------------------------------

    def _at_work(self) -> Feeder:
        if self._feeder is None:
            raise StateError("This iterator is closed.")
        return self._feeder

    def reset(self) -> None:
        """Start the next epoch; the rest of an unfinished one is dropped."""
        feeder = self._at_work()
        epoch, position, ended = feeder.place
        self._present = None
        if ended:
            feeder.go(epoch, position)
        elif (epoch, position) != (0, 0):
            feeder.go(epoch + 1, 0)

    def iter_next(self) -> bool:
        self._present = self._at_work().next()
        return self._present is not None

    def _begun(self) -> Begun:
        if self._present is None:
            raise StateError("There is no present batch before the first iter_next() or next().")
        return self._present

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())

    def getdata(self) -> NDArray:  # type: ignore[override]  # one array, as those of MXNet's iterators in C++
        return sharing(self._begun().data)

    def getlabel(self) -> NDArray:  # type: ignore[override]
        label = self._begun().label
        return sharing(label[:, 0] if label.shape[1] == 1 else label)

    def getpad(self) -> int:
        return self._begun().pad

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Epoch and position of the consumer, and the parameters that must be equal to continue."""
        epoch, position, ended = self._at_work().place
        return {
            "epoch": epoch,
            "position": position,
            "ended": ended,
            "batch_size": self.batch_size,
            "seed": self.options.seed,
            "shuffle": self.options.shuffle,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()` of an iterator over the same file with the same parameters."""
        mine = self.state()
        _STATE(state, "The state of an iterator over records")
        for key in ("batch_size", "seed", "shuffle"):
            if state[key] != mine[key]:
                raise FormatError(
                    f"The state is of an iterator with {key} {state[key]!r}, not {mine[key]!r}."
                )
        self._present = None
        self._at_work().go(state["epoch"], state["position"], state["ended"])

    def close(self) -> None:
        """End the threads; `next` raises StateError from now on. Closing twice does nothing."""
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            feeder.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        feeder = getattr(self, "_feeder", None)
        if feeder is not None:
            feeder.abandon()  # no locks: a garbage collection may come at any time


class ImageRecordIter(RecordIter):
    """Batches of the images in a file of records, made ahead of their use by threads.

    data: (N, C, H, W) of float32, red green blue;  label: (N,), or (N, label_width).

    Required: path_imgrec (the file), data_shape (C, H, W) with 1, 3 or 4 channels, batch_size.

    - **Which images**: path_imgidx (the file's index), shuffle (anew in each epoch, by seed), part_index out
      of num_parts, path_imglist (a .lst file whose labels count instead of the records'), label_width.
      Without an index, records are read from front to back, and shuffle first looks where they all are.
    - **The last batch** is filled from the front of the next epoch, which continues after it; `pad` counts
      those images. With round_batch=False it is filled with zeros.
    - **Size**: resize (the shorter side), then pad pixels of fill_value on each side, then the part in the
      middle, or anywhere with rand_crop. min_crop_size to max_crop_size: a random square, resized.
      random_resized_crop: a part of min_random_area to max_random_area of the image and min_aspect_ratio to
      max_aspect_ratio, resized. Images that are too small are enlarged. inter_method: as in `imresize`.
    - **Form**: max_rotate_angle or rotate (degrees), max_shear_ratio, min_random_scale to max_random_scale,
      max_aspect_ratio, min_img_size, max_img_size; mirror, or rand_mirror for every second image.
    - **Colour**: brightness, contrast, saturation, pca_noise, random_h, random_s, random_l.
    - **Numbers**: (x - mean_r) / std_r * scale, and so for g, b, a; or less mean_img, a file with one array
      (C, H, W), which is made if it is not there. max_random_contrast, max_random_illumination. dtype
      "uint8" or "int8" gives the image itself, or less its mean.
    - **Threads**: preprocess_threads decode, prefetch_buffer batches are made ahead.

    Random choices follow from seed (seed_aug for all but the order), epoch and the image's position, whatever
    the number of threads. Parameters that are not supported raise OpAttributeError. A damaged file or image
    raises FormatError, which names the byte where its record begins. `close()`, a `with` block or dropping
    the object ends the threads.
    """

    def __init__(self, **kwargs: Any) -> None:
        pillow()
        options = parse_options(kwargs)
        super().__init__(
            options, lambda records: Decoder(options, _mean(options, records)), options.dtype or "float32"
        )


def _mean(o: Options, records: Records) -> np.ndarray | None:
    """The mean image: read, or computed and written."""
    if not o.mean_img:
        return None
    if not os.path.exists(o.mean_img):
        if o.verbose:
            _log.info("ImageRecordIter: %s is not there and is computed", o.mean_img)
        mean = images_mean(o, records, lambda n: _log.info("%d images", n) if o.verbose else None)
        save(o.mean_img, {"mean_img": array(mean)})
        return mean
    arrays = load(o.mean_img)
    stored = list(arrays.values()) if isinstance(arrays, Mapping) else arrays
    if len(stored) != 1:
        raise FormatError(f"{o.mean_img} should hold one array, the mean image, but holds {len(stored)}.")
    return stored[0].asnumpy().astype(np.float32)


def ImageRecordUInt8Iter(**kwargs: Any) -> ImageRecordIter:
    """`ImageRecordIter` with dtype="uint8"; an older name."""
    return ImageRecordIter(dtype="uint8", **kwargs)


def ImageRecordInt8Iter(**kwargs: Any) -> ImageRecordIter:
    """`ImageRecordIter` with dtype="int8"; an older name."""
    return ImageRecordIter(dtype="int8", **kwargs)


_STATE = schema.fields(
    {
        "epoch": schema.whole(),
        "position": schema.whole(),
        "ended": schema.flag,
        "batch_size": schema.whole(),
        "seed": schema.whole(-(2**127), 2**127),
        "shuffle": schema.flag,
    }
)
