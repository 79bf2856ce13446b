"""What a step holds besides tensors, as Python values, without making any object of a pickle."""
import pytest

import zckpt


def test_hyper_parameters_and_counters(any_case):
    with zckpt.open(any_case / "ckpt") as ck, ck.extra() as values:
        assert values["global_steps"] == ck.step
        groups = values["param_groups"]
        assert groups[0]["betas"] == [0.9, 0.999] and groups[0]["lr"] == float(ck.facts["group.0.lr"])
        assert values["param_groups.1.weight_decay"] == 0
        assert values.get("nothing.here", 7) == 7
        with pytest.raises(zckpt.Error):
            values["nothing"]


def test_everything_can_be_walked(any_case):
    with zckpt.open(any_case / "ckpt") as ck:
        whole = ck.extra(ck.world - 1)
        everything = whole[""]
        assert isinstance(everything, dict) and "ds_version" in everything
        assert everything["ds_version"] == whole["ds_version"]
        whole.close()
        with pytest.raises(zckpt.UsageError, match="closed"):
            whole["ds_version"]
