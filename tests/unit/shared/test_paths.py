"""Where children are told to import this installation from."""

import os

from shared.paths import SOURCE_ROOT, python_path
from tests.support.paths import ROOT


def test_a_child_imports_from_the_directory_that_holds_our_packages() -> None:
    assert ROOT.resolve() == SOURCE_ROOT
    assert python_path({}) == str(SOURCE_ROOT)


def test_a_childs_own_import_path_comes_after_ours() -> None:
    assert python_path({"PYTHONPATH": "/theirs"}) == f"{SOURCE_ROOT}{os.pathsep}/theirs"
