"""Records the behaviour of TensorFlow's tf.distribute as JSON, for tests of another implementation.

Usage: make_distribute_golden.py --variant public|heldout --out DIR [--only variables,reduce,...]

The two variants run the same code with different values, replica counts, shapes and batch sizes.
Runs are deterministic: a second run writes the same bytes."""

import argparse
import importlib
import os
import pathlib

PARTS = ["variables", "reduce", "input", "cluster", "sharding", "packing", "contexts", "sync_replicas"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=["public", "heldout"], required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--show-errors", action="store_true")
    arguments = parser.parse_args()
    os.environ.pop("TF_CONFIG", None)

    import golden_common
    golden_common.set_up_logical_cpus()
    for part in arguments.only.split(","):
        module = importlib.import_module(f"golden_{part}")
        if part == "variables":
            own = golden_common.from_own_process("parameter_server_cluster.py", arguments.variant)
            module.generate(arguments.variant, arguments.out, own["variables"])
        else:
            module.generate(arguments.variant, arguments.out)
    if arguments.show_errors:
        for (kind, fragment), message in golden_common.seen_errors.items():
            print(f"{kind} | {fragment} | {message[:300]}")


if __name__ == "__main__":
    main()
