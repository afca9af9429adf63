"""Exceptions: penstock.error, and a subclass for each kind of failure, named as in C++ (errc) with the suffix "_error".

Used by every other file of the package, and by the module _core, which calls make().
"""

__all__ = [
    "error",
    "config_error",
    "usage_error",
    "io_error",
    "dataset_error",
    "sample_error",
    "out_of_memory_error",
    "system_error",
    "worker_program_error",
    "workers_exhausted_error",
    "protocol_error",
    "quarantine_full_error",
    "device_error",
    "device_unavailable_error",
    "device_out_of_memory_error",
    "device_busy_error",
    "device_poisoned_error",
    "device_hardware_error",
    "device_image_error",
    "state_mismatch_error",
    "sink_error",
    "stopped_error",
    "timed_out_error",
    "group_failed_error",
    "job_failed_error",
    "job_cancelled_error",
    "job_device_error",
    "job_exception_error",
    "job_poisoned_error",
    "job_timed_out_error",
    "job_too_large_error",
    "job_worker_lost_error",
    "remote_traceback",
]


class error(Exception):
    """The base of all exceptions of penstock. str() is the message for people, with the numbers.

    Attributes:
        code: the kind of failure, for programs: "config", "out_of_memory", ... (the names in reports and in C++).
        os_code: the errno or CUDA code that caused it; 0 if there is none.
    """

    code: str = "system"
    os_code: int = 0

    def __init__(self, message: str, os_code: int = 0) -> None:
        super().__init__(message)
        self.os_code = os_code

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class config_error(error, ValueError):
    """A config file, key or value is wrong: str() has every mistake, with its place and what to write instead."""

    code = "config"


class usage_error(error, RuntimeError):
    """The program misuses penstock: the message says how to use it."""

    code = "usage"


class io_error(error, OSError):
    """A file or folder could not be read or written. errno is os_code, or None if there is none."""

    code = "io"

    def __init__(self, message: str, os_code: int = 0) -> None:
        super().__init__(message, os_code)
        self.errno = os_code or None


class dataset_error(error):
    """The dataset as a whole is unusable: missing, empty, of a wrong shape, or too many of its samples failed."""

    code = "dataset"


class sample_error(error, RuntimeError):
    """One sample failed, and the config says on_bad_sample = "fail", or the loader on_bad_sample="raise".

    Attributes:
        index: what the sampler of a penstock.torch.DataLoader yielded for it.
        causes: the deaths of its workers, oldest first.
    """

    code = "sample"
    index: object = None
    causes: "list[str]" = []


class out_of_memory_error(error, MemoryError):
    """Host memory, a cgroup's limit or a resource limit is too small: the message has the calculation."""

    code = "out_of_memory"


class system_error(error):
    """The operating system refused something else."""

    code = "system"


class worker_program_error(error):
    """The worker program is missing, not executable, or broken."""

    code = "worker_program"


class workers_exhausted_error(error):
    """Restarts did not help: no worker is left, or too few for too long."""

    code = "workers_exhausted"


class protocol_error(error):
    """A process uses another version of the protocol, or violates it."""

    code = "protocol"


class quarantine_full_error(error):
    """Too many samples kill workers: the cause must be systematic."""

    code = "quarantine_full"


class device_error(error):
    """The GPU failed or cannot be used: the base of the six below."""


class device_unavailable_error(device_error):
    """There is no such device, no driver, or it cannot be used."""

    code = "device_unavailable"


class device_out_of_memory_error(device_error):
    """The device's memory is too small for this request. The device stays usable."""

    code = "device_out_of_memory"


class device_busy_error(device_error):
    """Another session or process holds the device."""

    code = "device_busy"


class device_poisoned_error(device_error):
    """A sticky device error: only a new process can use the device again."""

    code = "device_poisoned"


class device_hardware_error(device_error):
    """The device reports broken hardware."""

    code = "device_hardware"


class device_image_error(device_error):
    """This build of penstock has no code for this GPU."""

    code = "device_image"


class state_mismatch_error(error, ValueError):
    """A saved state belongs to another dataset, seed, batch size or layout of ranks: the message names the differences."""

    code = "state_mismatch"


class sink_error(error):
    """The consumer of batches failed."""

    code = "sink"


class stopped_error(error):
    """The pool or loader was stopped: the message says by whom."""

    code = "stopped"


class timed_out_error(error, TimeoutError):
    """A deadline passed."""

    code = "timed_out"

    def __init__(self, message: str, os_code: int = 0) -> None:
        super().__init__(message)  # TimeoutError would interpret a second argument as an errno
        self.os_code = os_code


class group_failed_error(error):
    """The group of ranks has failed: the message names the rank, and why."""

    code = "group_failed"


class job_failed_error(error):
    """A job of a pool ended without a result: the base of the next seven.

    Attributes:
        status: how it ended: "poisoned", "timed_out", ...
        type, traceback: of the exception that the function raised, as text; empty if it raised none.
        causes: the worker deaths blamed on the job, oldest first.
        attempts: how many times it was started.
        job: its number, as in the log and in events: the pool's first job is 1. None for a batch of a loader, and
            for a job that was too large to be submitted.
        input: for Pool.map() with a chunksize, the index of the input. Otherwise None.
    """

    code = "job_failed"
    status: str = ""
    type: str = ""
    traceback: str = ""
    causes: "list[str]" = []
    attempts: int = 0
    job: "int | None" = None
    input: "int | None" = None


class job_exception_error(job_failed_error):
    """The function raised an exception that cannot be pickled or unpickled; str() has its type and text."""


class job_poisoned_error(job_failed_error):
    """The job killed every worker that tried it: `causes` has each death."""


class job_timed_out_error(job_failed_error, TimeoutError):
    """It ran longer than its timeout; its worker was replaced."""

    def __init__(self, message: str, os_code: int = 0) -> None:
        super().__init__(message)
        self.os_code = os_code


class job_cancelled_error(job_failed_error):
    """It was killed (Future.kill()), or the pool ended before it: str() says why."""


class job_worker_lost_error(job_failed_error):
    """Its worker died, and the job must not start twice (idempotent=False)."""


class job_too_large_error(job_failed_error):
    """Its argument or its result does not fit into [jobs] memory."""


class job_device_error(job_failed_error):
    """Its work on the device failed."""


class remote_traceback(Exception):
    """The cause of an exception raised in a worker: str() is the traceback from the worker, `tb` only its text."""

    @property
    def tb(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return f'\n"""\n{self.tb}"""'


# Only the kinds that C++ knows have their own codes.
_BY_CODE: dict[str, type[error]] = {kind.code: kind for name in __all__ if "code" in vars(kind := globals()[name])}


for _name in __all__:  # under the names that programs use
    globals()[_name].__module__ = "penstock"


def make(code: str, message: str, os_code: int) -> error:
    """The exception for a failure of the C++ library."""
    kind = _BY_CODE.get(code)
    if kind is None:
        made = error(message, os_code)
        made.code = code
        return made
    return kind(message, os_code)
