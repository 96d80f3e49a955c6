"""Which model a path stands for; what it answers is in study/test_model.py."""

import dataclasses

import numpy as np
import pytest

from headstart.errors import UserError
from headstart.runs.study_model import StudyModel, StudyModelConfig, model_directory, run_of


def test_a_run_is_itself(tmp_path):
    assert model_directory(tmp_path) is None
    assert run_of(tmp_path) == tmp_path


def test_a_study_stands_for_the_model_in_it(tmp_path):
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(UserError) as error:
        model_directory(tmp_path)
    assert error.value.code == "missing"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{}")
    assert model_directory(tmp_path) == model_directory(tmp_path / "model") == tmp_path / "model"


def test_a_mix_weighs_the_network_and_reads_both_texts_of_a_pair(tmp_path):
    arrays = {
        "intercepts": np.log([0.25, 0.75]), "coefficients": np.zeros((0, 2)), "classes": np.array([0, 1]),
    }  # fmt: skip
    config = StudyModelConfig(arm="combined", kind="combined", budget=9, label_names=["a", "b"], exponents=[2.0, 0.5])
    alone = StudyModel(tmp_path, dataclasses.replace(config, exponents=[]), [arrays], [])
    np.testing.assert_allclose(alone.mixed([], ["x"]), [[0.25, 0.75]])
    found = StudyModel(tmp_path, config, [arrays], []).mixed([np.array([[0.64, 0.36]])], [("x", "y")])
    np.testing.assert_allclose(found, [[0.0625 * 0.8 / 0.3875, 0.5625 * 0.6 / 0.3875]])
