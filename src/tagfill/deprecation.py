"""Old public names, kept for one version: each use warns and names the replacement.

A module that renamed something ends with

    __getattr__ = renamed(__name__, {"Localisation": "LocalizationMeter"})

and a function that renamed a keyword is decorated with `@renamed_keywords(localise="localize")`. A package that renamed
a module calls `renamed_module`.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def warn_renamed(old: str, new: str) -> None:
    """Warn the caller's caller that `old` is now called `new`."""
    warnings.warn(f"{old} was renamed to {new}; the old name will be removed in version 0.3.", DeprecationWarning, 3)


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module-level `__getattr__` that resolves old names.

    Args:
        module: `__name__` of the module.
        names: new name of each old one, either a name in the same module or a full dotted path.
    """

    def resolve(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home, _, attribute = names[name].rpartition(".")
        warn_renamed(f"{module}.{name}", f"{home or module}.{attribute}")
        return getattr(importlib.import_module(home or module), attribute)

    return resolve


def renamed_module(module: str, names: Mapping[str, str]) -> None:
    """Keep an old module importable; call it from the package that the module was in.

    Args:
        module: full name of the old module.
        names: full new name of each public name in it.
    """
    package, _, name = module.rpartition(".")
    old = ModuleType(module, "An old name, kept for one version.")
    old.__getattr__ = renamed(module, names)  # type: ignore[method-assign]
    sys.modules[module] = old
    setattr(sys.modules[package], name, old)


def renamed_keywords(**names: str) -> Callable[[Function], Function]:
    """Accept old keyword arguments under their new names.

    Args:
        names: new name of each old keyword.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            for old in names.keys() & kwargs.keys():
                warn_renamed(f"{function.__name__}({old}=…)", f"{names[old]}=…")
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate
