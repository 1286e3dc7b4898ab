"""Makes the objects that a configuration names by `_target_`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from hydra._internal.utils import _locate
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from simlora.config.reading import Tree, section
from simlora.core.checks import shown
from simlora.core.errors import InputError

T = TypeVar("T")


def make(tree: Tree, key: str, kind: type[T]) -> T:
    """Return the object that the section `key` describes. Raises InputError if it names no class of that kind."""
    made: T = _called(_of_kind(tree, key, kind), key)
    return made


def factory(tree: Tree, key: str, kind: type[T], *args: Any) -> Callable[..., T]:
    """Return what makes such objects, having tried it once with `args`; raises InputError as `make` does."""
    made = _of_kind(tree, key, kind)
    _called(made, key, *args)
    return made


def partial_of(tree: Tree, key: str) -> functools.partial[Any]:
    """Return what the section `key` describes, to be called with more arguments, without having tried it."""
    made = _instantiate(tree, key)
    assert isinstance(made, functools.partial), "Hydra makes a partial of what is to be called later"
    return made


def with_target(tree: Tree, key: str) -> dict[str, Any]:
    """Return a section that names code. Raises InputError if it does not."""
    found = section(tree, key)
    target = found.get("_target_")
    if not isinstance(target, str) or "." not in target or not all(map(str.isidentifier, target.split("."))):
        raise InputError(
            f"{key}._target_ is {shown(target)}, must be a class in a module, such as my_module.MyClass"
        )
    return found


def located(key: str, target: Any) -> Any:
    """Return what `_target_` of the section `key` names, imported. Raises InputError for what cannot be."""
    name = with_target({key: {"_target_": target}}, key)["_target_"]
    try:
        return _locate(name)
    except Exception as error:
        raise _not_imported(key, name, error) from error


def _not_imported(key: str, target: str, error: BaseException) -> InputError:
    why = _why_not_imported(error.__cause__ or error, target)
    return InputError(f"{key}._target_ is {target}, which cannot be imported: {why}")


def _instantiate(tree: Tree, key: str) -> Any:
    found = with_target(tree, key)
    try:
        return functools.partial(_class_of_ours(found), **_arguments(found))
    except Exception:  # Hydra takes ten times as long, and makes what is not ours, or says what is wrong
        node = found | {"_partial_": True, "_convert_": "all"}
    try:
        return instantiate(node)
    except InstantiationException as error:
        cause = _innermost(error)
        if isinstance(cause, InputError):
            raise cause from None
        if isinstance(cause, TypeError):
            raise InputError(f"{key} cannot be made: {cause}") from error
        if isinstance(cause, ImportError | InstantiationException):
            raise _not_imported(key, node["_target_"], cause) from error
        raise cause from None


def _class_of_ours(node: Tree) -> Callable[..., Any]:
    """Return the class of simlora's that a section names. Raises LookupError if it names something else."""
    found = _locate(node["_target_"])
    if not (isinstance(found, type) and found.__module__.startswith("simlora.")):
        raise LookupError(node["_target_"])
    return found


def _arguments(node: Tree) -> dict[str, Any]:
    """Return the arguments of a section, those made that are sections of simlora's, as Hydra would.

    Raises LookupError for what only Hydra reads: its own keys, and what it would resolve.
    """
    if any(str(key).startswith("_") and key != "_target_" for key in node):
        raise LookupError("a key of Hydra's")
    return {key: _argument(value) for key, value in node.items() if key != "_target_"}


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return [_argument(one) for one in value]
    if isinstance(value, dict):
        arguments = _arguments(value)
        return _class_of_ours(value)(**arguments) if "_target_" in value else arguments
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise LookupError("no plain value, such as a section of OmegaConf's own")
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise LookupError("a reference, or a value that is missing")
    return value


def _of_kind(tree: Tree, key: str, kind: type[T]) -> functools.partial[T]:
    """Return what the section `key` describes; nothing is called that is no class of that kind."""
    made = partial_of(tree, key)
    if not (isinstance(made.func, type) and issubclass(made.func, kind)):
        target = section(tree, key)["_target_"]
        raise InputError(
            f"{key}._target_ is {target}, must be {kind.__module__}.{kind.__qualname__} or a class below it"
        )
    return made


def _called(made: functools.partial[Any], key: str, *args: Any) -> Any:
    """Return what is made; the arguments are checked before, as a compiled class without `__init__` takes any."""
    try:
        inspect.signature(made.func).bind(*args, *made.args, **made.keywords)
    except TypeError as mismatch:
        raise InputError(f"{key} cannot be made: {made.func.__name__}() {mismatch}") from mismatch
    except ValueError:
        pass  # a built-in type that shows no signature
    try:
        return made(*args)
    except TypeError as error:
        raise InputError(f"{key} cannot be made: {error}") from error


def _innermost(error: BaseException) -> BaseException:
    """Return what Hydra wrapped, however often."""
    while isinstance(error, InstantiationException) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _why_not_imported(error: BaseException, target: str) -> str:
    module, _, name = target.rpartition(".")
    if isinstance(error, ModuleNotFoundError) and error.name == target:
        return f"{module} has no {name}"
    if isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]:
        return f"there is no module {error.name} in the current folder, installed, or on PYTHONPATH"
    return " ".join(str(error).split("\n\n")[0].split()) or type(error).__name__
