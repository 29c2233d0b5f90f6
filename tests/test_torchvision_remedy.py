from __future__ import annotations

import subprocess
import sys

import pytest

from tagfill import torchvision_remedy


def run(code: str, *, first_on_path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, since a module is imported once per process."""
    prefix = f"import sys; sys.path.insert(0, {first_on_path!r})\n" if first_on_path else ""
    return subprocess.run([sys.executable, "-c", prefix + code], capture_output=True, text=True)


def test_operators_are_defined_exactly_where_torchvision_fails_without_them():
    done = run(
        "try:\n"
        "    import torchvision\n"
        "except RuntimeError:\n"
        "    print('fails', end=' ')\n"
        "else:\n"
        "    print('imports', end=' ')\n"
        "from tagfill import torchvision_remedy\n"
        "import torchvision.transforms.v2\n"
        "print(torchvision_remedy._library is not None)"
    )
    assert done.stdout.split() in (["fails", "True"], ["imports", "False"]), done.stderr


def test_nothing_is_defined_where_torchvision_imports_without_help(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("")
    done = run(
        "import torch\n"
        "from tagfill import torchvision_remedy\n"
        "print(torchvision_remedy._library is not None, hasattr(torch.ops.torchvision, 'nms'))",
        first_on_path=str(tmp_path),
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_other_import_errors_are_raised(monkeypatch):
    def broken(name: str) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(torchvision_remedy.importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="something else"):
        torchvision_remedy.import_torchvision()


def test_a_failing_import_is_tried_again_with_the_operators_defined(tmp_path):
    """This is how PyPI's torchvision behaves beside a torch that its library was not built for."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "import torch\n"
        "if not hasattr(torch.ops.torchvision, 'nms'):\n"
        "    raise RuntimeError('operator torchvision::nms does not exist')\n"
    )
    done = run(
        "import tagfill.torchvision_remedy as r, torchvision; print(r._library is not None)",
        first_on_path=str(tmp_path),
    )
    assert done.stdout.strip() == "True", done.stderr
