"""Batches and their tensors. NumPy and torch are optional; if installed, tensors convert to their arrays."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional, Union

from penstock import _core
from penstock._errors import usage_error

if TYPE_CHECKING:
    import numpy
    import torch  # type: ignore[import-not-found,unused-ignore]

__all__ = ["Batch", "Tensor"]

_CPU, _CUDA = 1, 2  # DLPack's device types

# NumPy's spellings, for the array interfaces.
_TYPESTR = {
    "uint8": "|u1",
    "int8": "|i1",
    "uint16": "<u2",
    "int16": "<i2",
    "uint32": "<u4",
    "int32": "<i4",
    "uint64": "<u8",
    "int64": "<i8",
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
}


class Tensor:
    """One tensor of a batch: memory with a name, a shape and a dtype, for torch, NumPy and every DLPack consumer.

    The first axis is the rows of the batch; C order, no gaps. The memory stays valid as long as this object or
    any view made from it exists, even after the next batch and after the session's end.
    """

    __slots__ = ("_core", "_kept", "name", "shape", "dtype")

    def __init__(self, core: _core.Tensor) -> None:
        self._core = core
        self._kept: Any = None  # a copy as a torch tensor, made before the ring's buffer was returned
        self.name: str = core.name  #: "image"
        self.shape: tuple[int, ...] = tuple(core.shape)  #: rows first
        self.dtype: str = core.dtype  #: "uint8", "float16", "bfloat16", ...

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0", as torch spells it."""
        number = self._core.cuda_device
        return "cpu" if number < 0 else f"cuda:{number}"

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self._core.nbytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<penstock.Tensor {self.name!r} {self.dtype} {list(self.shape)} on {self.device}>"

    # ---- protocols ------------------------------------------------------------------------------------------------

    def __dlpack_device__(self) -> tuple[int, int]:
        number = self._core.cuda_device
        return (_CPU, 0) if number < 0 else (_CUDA, number)

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """A DLPack capsule without a copy: "dltensor_versioned" for consumers that pass max_version >= (1, 0), else
        "dltensor".

        Args:
            stream: the consumer's stream, in the protocol's numbering of CUDA streams. The buffer is reused only after
                the work on it; pass other streams to record_stream.

        Raises:
            BufferError: another device or a copy was requested; copy with the consumer's own functions instead.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"this tensor is on {self.device}: move it with the library that consumes it, or use .numpy()")
        if copy:
            raise BufferError("penstock exports tensors without a copy: copy it with the library that consumes it")
        if self._kept is not None:
            return self._kept.__dlpack__(stream=stream)
        if self._core.cuda_device >= 0 and stream != -1:
            self._core.record_stream(_native(stream))
        return self._core.dlpack(max_version is not None and tuple(max_version) >= (1, 0))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._core.cuda_device < 0:
            raise AttributeError(f"this tensor is on {self.device}: it has no __cuda_array_interface__")
        if self._kept is not None:
            return dict(self._kept.__cuda_array_interface__)
        self._core.record_stream(0)  # the consumer's stream is unknown: assume the legacy default stream
        return {
            "shape": self.shape,
            "typestr": self._typestr(),
            "data": (self._core.address, False),
            "version": 3,
            "strides": None,
            "stream": None,  # a batch is complete when it is handed out
        }

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "numpy.ndarray[Any, Any]":
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int, /) -> memoryview:
        """The buffer protocol, from Python 3.12 on; memoryview(tensor) is writable, and on the host only."""
        return memoryview(self._core)

    # ---- copies and views -----------------------------------------------------------------------------------------

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """A NumPy array: a view on the host device, a copy if the tensor is on a GPU (waits for the copy).

        Raises:
            usage_error: NumPy is not installed, or the dtype is bfloat16, which it does not support.
        """
        try:
            import numpy
        except ImportError as missing:
            raise usage_error("numpy() needs NumPy: pip install numpy, or use memoryview(tensor) or DLPack") from missing
        typestr = self._typestr()
        if self._kept is not None:
            return numpy.asarray(self._kept.cpu().numpy())
        if self._core.cuda_device >= 0:
            return numpy.frombuffer(self._core.read_back(), dtype=typestr).reshape(self.shape)
        if not self.nbytes:
            return numpy.empty(self.shape, typestr)
        return numpy.frombuffer(memoryview(self._core), dtype=typestr).reshape(self.shape)

    def torch(self) -> "torch.Tensor":
        """A torch tensor over the same memory, without a copy. Work on torch's current stream sees the batch's data.

        Raises:
            usage_error: torch is not installed.
        """
        try:
            import torch
        except ImportError as missing:
            raise usage_error("torch() needs PyTorch: pip install torch, or use numpy() or DLPack") from missing
        if self._kept is not None:
            return self._kept  # type: ignore[no-any-return,unused-ignore]
        if not self.nbytes:
            return torch.empty(self.shape, dtype=getattr(torch, self.dtype), device=self.device)
        return torch.from_dlpack(self)  # type: ignore[no-any-return,attr-defined,unused-ignore]

    def tobytes(self) -> bytes:
        """All elements, row after row, copied to the host."""
        if self._kept is not None:
            import torch

            return bytes(self._kept.contiguous().view(torch.uint8).cpu().numpy().tobytes())
        return bytes(self._core.read_back())

    def _typestr(self) -> str:
        if self.dtype not in _TYPESTR:
            raise usage_error(f"NumPy has no {self.dtype}: use .torch(), or .tobytes() for the bits of {self.name!r}")
        return _TYPESTR[self.dtype]


class Batch:
    """A batch of a session: tensors by name, and the indices of their samples.

    batch["image"] is a Tensor; `"image" in batch`, batch.keys(), batch.values(), batch.items() and len(batch) work as
    for a dict. Batches may be kept, even after the session's end. On the host device
    each batch is a separate copy. On a GPU it is one of the [gpu] buffers, which returns to the session when its last
    tensor is destroyed and the streams that used it have finished; when all but one are held, the next batch is
    copied into torch's memory (without torch, next() raises usage_error after 5 s).
    """

    __slots__ = ("__weakref__", "_lease", "_records", "_tensors")

    def __init__(self, lease: _core.Lease) -> None:
        self._lease = lease
        self._tensors = {t.name: Tensor(t) for t in lease.tensors()}
        self._records: Optional[dict[str, Tensor]] = None

    @property
    def rows(self) -> int:
        """The number of samples: less than the batch size at an epoch's end, or when samples failed."""
        return len(self._lease.samples)

    @property
    def samples(self) -> list[int]:
        """The dataset index of each row."""
        return self._lease.samples

    @property
    def epoch(self) -> int:
        """The epoch that the batch belongs to."""
        return self._lease.epoch

    @property
    def index(self) -> int:
        """The batch's number within its epoch, from 0; reports call it the sequence number."""
        return self._lease.sequence

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0"."""
        number = self._lease.cuda_device
        return "cpu" if number < 0 else f"cuda:{number}"

    @property
    def records(self) -> dict[str, Tensor]:
        """Facts about the rows that never leave the host, such as "crop" and "flip" of images."""
        if self._records is None:
            self._records = {t.name: Tensor(t) for t in self._lease.records()}
        return self._records

    def record_stream(self, stream: Union[int, Any]) -> None:
        """Records that this stream uses the batch: the buffer is reused only after the work that is queued on it when
        the last tensor is destroyed. Streams passed to __dlpack__, and torch's current one in .torch(), are recorded
        automatically.

        Args:
            stream: a torch.cuda.Stream, a cupy.cuda.Stream, or a cudaStream_t as a number. Ignored on the host device.
        """
        native = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
        self._lease.record_stream(int(native))

    def _keep(self) -> None:
        """Copies the batch from the ring into torch's memory and returns the buffer to the session, unless the program already has
        a view of it."""
        if self._lease.viewed:
            return
        for tensor in self._tensors.values():
            if tensor._kept is None:
                tensor._kept = tensor.torch().clone()
        self._lease.release()  # reused only after the copies: .torch() has recorded their stream

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            there = ", ".join(self._tensors) or "none"
            raise KeyError(f"this batch has no tensor {name!r}; it has: {there}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return list(self._tensors)

    def values(self) -> list[Tensor]:
        """The tensors."""
        return list(self._tensors.values())

    def items(self) -> list[tuple[str, Tensor]]:
        """Names and tensors."""
        return list(self._tensors.items())

    def __repr__(self) -> str:
        tensors = ", ".join(f"{t.name}: {t.dtype} {list(t.shape)}" for t in self._tensors.values())
        return f"<penstock.Batch {self.index} of epoch {self.epoch}, {self.rows} rows on {self.device}: {tensors}>"


def batch_of(lease: _core.Lease, last_buffer: bool) -> Batch:
    """The batch that a lease holds. `last_buffer`: the session has no other buffer, so copy this batch if torch can hold it."""
    batch = Batch(lease)
    if last_buffer and lease.cuda_device >= 0 and _torch_is_there():
        _say_once()
        batch._keep()
    return batch


def keep_all(batches: Iterable[Batch]) -> None:
    """At the end of a session: copies batches that the program still holds into torch's memory, if possible, so that they stay
    valid."""
    if sys.modules.get("torch") is None:
        return
    for batch in batches:
        try:
            batch._keep()
        except Exception:  # the device can no longer copy: its batches raise an error when they are used
            return


def _torch_is_there() -> bool:
    if sys.modules.get("torch") is not None:
        return True
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def _native(stream: Optional[int]) -> int:
    """DLPack's stream number as a cudaStream_t: None and 1 are the legacy default stream, 2 the per-thread one."""
    if stream is None or stream == 1:
        return 0
    return stream


_said = False


def _say_once() -> None:
    global _said
    if _said:
        return
    _said = True
    import warnings

    warnings.warn(
        "the program keeps so many batches that all of the session's [gpu] buffers are in use: each further batch is copied into torch's memory on the device. Drop batches earlier, or raise [gpu] buffers",
        stacklevel=4,
    )
