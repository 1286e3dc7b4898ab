"""Where runs are spread to: the cores of this machine, or the workers of a Ray or Dask cluster, by joblib."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from joblib import parallel_config

from simlora.core.errors import InputError, nearest

LOKY, RAY, DASK = BACKENDS = ("loky", "ray", "dask")
DASK_ANSWERS_S = 5.0
"""Seconds in which a scheduler of Dask's has to answer."""


@contextmanager
def backend(name: str, address: str | None = None) -> Iterator[None]:
    """Run what joblib runs inside on this backend.

    `loky` are processes of this machine. `ray` and `dask` need their extra (`pip install '.[ray]'` where simlora lies);
    `address` is where the cluster is, such as "10.0.0.1:6379" or "tcp://10.0.0.1:8786"; None: the one that this process
    is connected to already, or else one that is started on this machine. Every machine needs simlora as it is here.
    Raises InputError for a name that is none, and for a library or a cluster that is not there.
    """
    if name not in BACKENDS:
        raise InputError(f"backend is {name!r}; {nearest(name, BACKENDS)}")
    if name == LOKY:
        if address is not None:
            raise InputError(
                "backend=loky runs on this machine and takes no address; choose backend ray or dask"
            )
        yield
    elif name == RAY:
        with _ray(address):
            yield
    else:
        with _dask(address):
            yield


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise InputError("backend=ray needs Ray: pip install '.[ray]' where simlora lies") from None
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"there is no Ray cluster at {address}: {str(error).splitlines()[0]}") from None
    register_ray()
    try:
        with parallel_config(backend="ray"):
            yield
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _dask(address: str | None) -> Iterator[None]:
    try:
        from distributed import Client, get_client
    except ImportError:
        raise InputError("backend=dask needs Dask: pip install '.[dask]' where simlora lies") from None
    client = None
    try:
        if address is None:
            get_client()
        else:
            client = Client(address, timeout=DASK_ANSWERS_S)
    except ValueError:
        client = Client(threads_per_worker=1, dashboard_address=None)
    except (OSError, TimeoutError) as error:
        raise InputError(f"there is no Dask scheduler at {address}: {error}") from None
    try:
        with parallel_config(backend="dask"):
            yield
    finally:
        if client is not None:
            client.close()
