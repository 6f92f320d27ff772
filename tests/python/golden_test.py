"""Every golden record of dense and sparse optimizers that Cairn offers, driven through the package
on two servers: values after every step and slots at the end (tests/golden/data/README.md)."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402
from package import MISSING, cairn, np  # noqa: E402

# Rules of raw ops: Cairn's type, and the arguments that the op implies. Records of other rules are
# those of no Keras optimizer (tests/support/optimizer_records.cc).
TYPES = {
    "sgd_weight_decay": ("sgd", {}), "momentum_keras": ("sgd", {}),
    "adagrad_keras": ("adagrad", {}), "rmsprop_momentum": ("rmsprop", {}),
    "rmsprop_centered": ("rmsprop", {"centered": True}),
    "rmsprop_centered_momentum": ("rmsprop", {"centered": True}),
    "amsgrad": ("adam", {"amsgrad": True}), "adamw_amsgrad": ("adamw", {"amsgrad": True}),
}
SAME = ("sgd", "adadelta", "rmsprop", "adam", "adamw", "adamax", "nadam", "lazy_adam", "lion",
        "ftrl")
LEAST_DENSE, LEAST_SPARSE = 80, 25  # records that must run


def optimizer_of(record):
    """The description of the record's optimizer, or None if Cairn does not offer it."""
    rule = record["rule"]
    if rule not in TYPES and rule not in SAME:
        return None
    if record.get("duplicates", "summed") != "summed":
        return None
    type_name, implied = TYPES.get(rule, (rule, {}))
    rates = record["learning_rates"]
    rate = rates[0] if len(set(rates)) == 1 else cairn.optim.PiecewiseConstantDecay(
        list(range(len(rates) - 1)), rates).describe()
    description = {"type": type_name, "learning_rate": rate, **implied}
    description.update({k: float(v) for k, v in record["hyperparameters"].items()})
    if "accumulator" in record["initial_slots"]:
        accumulator = np.ravel(record["initial_slots"]["accumulator"])
        description["initial_accumulator_value"] = float(accumulator[0])
    return description


@unittest.skipIf(MISSING, f"numpy or the package: {MISSING}")
class Golden(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = processes.Cluster.of_class(cls, 2, ["--durability=off"])

    def run_record(self, client, name, record, tolerance):
        optimizer = optimizer_of(record)
        if optimizer is None:
            return False
        initial = np.array(record["initial"], np.float32)
        variable = client.variable(name, initial.shape, optimizer=optimizer,
                                   touched_rows=record.get("touched_rows", "all"))
        variable.assign(initial)
        pushes = record.get("pushes") or record["gradients"]
        for step, push in enumerate(pushes):
            if isinstance(push, dict):
                shape = (len(push["ids"]), *initial.shape[1:])
                variable.push(np.array(push["gradients"], np.float32).reshape(shape),
                              rows=push["ids"])
            else:
                variable.push(np.array(push, np.float32))
            near = tolerance["variable" if step else "variable_after_step_1"]
            np.testing.assert_allclose(variable.pull(), np.array(record["expected"][step]),
                                       near["rtol"], near["atol"],
                                       err_msg=f"{record['name']}, step {step + 1}")
        for slot, initial_slot in record["initial_slots"].items():
            if isinstance(initial_slot, list):
                np.testing.assert_allclose(
                    variable.pull(slot=slot), np.array(record["slots"][slot]),
                    tolerance["slots"]["rtol"], record["slot_atol"][slot],
                    err_msg=f"{record['name']}, slot {slot}")
        return True

    def run_file(self, file):
        with open(processes.golden(file), encoding="utf-8") as opened:
            golden = json.load(opened)
        with cairn.connect(self.cluster.addresses, job=file.split(".", maxsplit=1)[0],
                           worker=0) as client:
            return sum(self.run_record(client, f"v{i}", record, golden["tolerance"])
                       for i, record in enumerate(golden["cases"]))

    def test_dense(self):
        self.assertGreaterEqual(self.run_file("optimizers_dense.json"), LEAST_DENSE)

    def test_sparse(self):
        self.assertGreaterEqual(self.run_file("optimizers_sparse.json"), LEAST_SPARSE)


if __name__ == "__main__":
    tap.main()
