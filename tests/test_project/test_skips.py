"""The guard of conftest.py: a skipped test fails the run unless skips.txt lists it with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SKIPPED = 'import pytest\n\n@pytest.mark.skip(reason="no camera")\ndef test_photo(): pass\n\ndef test_other(): pass\n'
SKIPPED_MODULE = 'import pytest\npytest.skip("no camera", allow_module_level=True)'


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    return pytester


def listed(project: pytest.Pytester, text: str) -> None:
    (project.path / "skips.txt").write_text(text, encoding="utf-8")


def test_run_without_skips_passes(project):
    project.makepyfile(test_camera="def test_other(): pass")
    assert project.runpytest().ret == pytest.ExitCode.OK


def test_unlisted_skip_fails_and_is_named_with_its_reason(project):
    project.makepyfile(test_camera=SKIPPED)
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*not listed in skips.txt*", "test_camera.py::test_photo: no camera"])


def test_listed_skip_passes(project):
    project.makepyfile(test_camera=SKIPPED)
    listed(project, "# cameras\n\ntest_camera.py::test_photo: there is no camera here\n")
    assert project.runpytest().ret == pytest.ExitCode.OK


def test_star_stands_for_any_characters_and_brackets_for_themselves(project):
    project.makepyfile(
        test_camera='import pytest\n@pytest.mark.parametrize("n", [1, 2])\ndef test_photo(n): pytest.skip("no camera")'
    )
    listed(project, "test_*::test_photo[1]: there is no camera here\n")
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["test_camera.py::test_photo[[]2[]]: no camera"])
    result.stdout.no_fnmatch_line("test_camera.py::test_photo[[]1[]]: no camera")


@pytest.mark.parametrize("ending", ["", ":", ":  "])
def test_listed_skip_needs_a_reason(project, ending):
    project.makepyfile(test_camera=SKIPPED)
    listed(project, f"test_camera.py::test_photo{ending}")
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Line 1 of skips.txt gives no reason: test_camera.py::test_photo*"])


def test_module_that_skips_itself_fails(project):
    project.makepyfile(test_camera=SKIPPED_MODULE)
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["test_camera.py: no camera"])


def test_expected_failure_is_not_a_skip(project):
    project.makepyfile(test_camera="import pytest\n@pytest.mark.xfail\ndef test_photo(): raise ValueError")
    assert project.runpytest().ret == pytest.ExitCode.OK


def test_failing_test_stays_the_reason_of_failure(project):
    project.makepyfile(test_camera=SKIPPED + "\ndef test_wrong(): raise ValueError\n")
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, skipped=1, failed=1)


@pytest.mark.parametrize(
    "content", [pytest.param(SKIPPED, id="test"), pytest.param(SKIPPED_MODULE, id="module", marks=pytest.mark.long)]
)
def test_unlisted_skip_fails_with_several_workers(project, content):
    project.makepyfile(test_camera=content)
    result = project.runpytest_subprocess("--numprocesses", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["test_camera.py*: no camera"])
