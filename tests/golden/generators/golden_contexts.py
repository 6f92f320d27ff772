"""contexts.json: the current context at each place, the results of run, and refusals."""

import collections
import copy
import threading

import golden_common as common
from golden_common import tf
from tensorflow.python.distribute import distribute_lib

FRAGMENTS = [
    "Method requires being in cross-replica context, use get_replica_context().merge_call()",
    "Mixing different tf.distribute.Strategy objects",
    "Need to be inside \"with strategy.scope()\"",
    "Need to be inside `call_for_each_replica()`",
    "Mismatching ReplicaContext.",
    "Mismatching tf.distribute.Strategy objects",
    "Must not be called inside a `tf.distribute.Strategy` scope",
    "Device scope nesting error",
    "Variable creator scope nesting error",
    "Variable scope nesting error",
    "Must only deepcopy DistributionStrategy",
    "positional args must be a list or tuple",
    "Some replicas made a different number of replica_context().merge_call() calls",
    "`merge_call` called while defining a new graph",
    "not inside a replica context",
    "unsupported operand type(s) for +: 'PerReplica'",
    "with mismatching name on device",
    "`colocate_vars_with` must only be passed a variable created in this",
    "No duplicates allowed in `devices` argument",
    "In-graph multi-worker training with `MirroredStrategy` is not supported in eager mode",
    "Devices cannot have mixed list of device strings containing both localhost and other job types",
    "method unsupported by default tf.distribute.Strategy",
    "a chosen message",
    "len(v) ==",
    "v[0].keys",
]


def replica_id():
    """The id of the current replica as a number."""
    value = tf.distribute.get_replica_context().replica_id_in_sync_group
    return int(tf.get_static_value(value)) if tf.is_tensor(value) else value


def current():
    """The results of the query functions at the place of the call."""
    replica = tf.distribute.get_replica_context()
    described = None
    if replica is not None:
        described = {"replica_id": replica_id(), "num_replicas": replica.num_replicas_in_sync}
    return {"replica_context": described,
            "in_cross_replica_context": tf.distribute.in_cross_replica_context(),
            "has_strategy": tf.distribute.has_strategy(),
            "num_replicas_of_current_strategy": tf.distribute.get_strategy().num_replicas_in_sync,
            "update_replica_id_set": distribute_lib.get_update_replica_id() is not None}


def places(strategy):
    """Name -> function that returns the list of contexts seen at that place, in execution order."""
    def seen_in(body):
        def collect():
            seen = []
            body(lambda: seen.append(current()))
            return seen
        return collect

    def scope(note):
        with strategy.scope():
            note()

    def nested_scope(note):
        with strategy.scope(), strategy.scope():
            note()

    def after_scope(note):
        with strategy.scope():
            pass
        note()

    def run(note):
        strategy.run(lambda: note())

    def run_in_scope(note):
        with strategy.scope():
            strategy.run(lambda: note())

    def run_in_function(note):
        tf.function(lambda: strategy.run(lambda: note()))()

    def merge_call(note):
        strategy.run(lambda: tf.distribute.get_replica_context().merge_call(lambda s: note()))

    def after_merge_call(note):
        def step():
            tf.distribute.get_replica_context().merge_call(lambda s: None)
            note()
        strategy.run(step)

    def update(note):
        with strategy.scope():
            variable = tf.Variable(1.0)
            strategy.extended.update(variable, lambda v: note())

    def update_in_merge_call(note):
        with strategy.scope():
            variable = tf.Variable(1.0)
        def merge(s):
            s.extended.update(variable, lambda v: note())
        strategy.run(lambda: tf.distribute.get_replica_context().merge_call(merge))

    def update_in_run(note):
        with strategy.scope():
            variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
        strategy.run(lambda: tf.distribute.get_replica_context()._update(
            variable, lambda v: note()))

    def value_function(note):
        with strategy.scope():
            strategy.experimental_distribute_values_from_function(lambda c: note())

    def dataset_function(note):
        def make(context):
            note()
            return tf.data.Dataset.range(2).batch(1)
        strategy.distribute_datasets_from_function(make)

    def set_strategy(note):
        tf.distribute.experimental_set_strategy(strategy)
        note()
        tf.distribute.experimental_set_strategy(None)
        note()

    bodies = [scope, nested_scope, after_scope, run, run_in_scope, run_in_function, merge_call,
              after_merge_call, update, update_in_merge_call, update_in_run, value_function,
              dataset_function, set_strategy]
    found = {"outside": seen_in(lambda note: note())}
    found.update({body.__name__: seen_in(body) for body in bodies})
    return found


STRATEGIES = {"public": [("default", 1), ("one_device", 1), ("mirrored", 2), ("central", 2)],
              "heldout": [("mirrored", 3), ("central", 3), ("mirrored", 1), ("central", 1)]}


def context_cases(variant):
    cases = []
    for name, replicas in STRATEGIES[variant]:
        strategy = common.make_strategy(name, replicas)
        for place, collect in places(strategy).items():
            cases.append({"strategy": name, "replicas": replicas, "place": place,
                          **common.outcome(lambda: {"contexts": collect()}, FRAGMENTS)})
    return common.numbered("XC", cases)


Pair = collections.namedtuple("Pair", ["left", "right"])


def describe(strategy, value):
    """The structure that run returned: the leaves that are per replica, and the values."""
    if isinstance(value, dict):
        return {"dict": {str(k): describe(strategy, v) for k, v in value.items()}}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"namedtuple": [describe(strategy, v) for v in value]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [describe(strategy, v) for v in value]}
    if isinstance(value, tf.Variable):
        return {"variable": value.name.split(":")[0]}
    if isinstance(value, tf.distribute.DistributedValues):
        return {"per_replica": [common.tensor(v)["data"] if tf.is_tensor(v) else v
                                for v in strategy.experimental_local_results(value)]}
    if tf.is_tensor(value):
        return {"value": common.tensor(value)["data"]}
    return {"value": value}


def run_cases(variant):
    """The results of run for given results of the replicas, and their local results."""
    cases = []
    for name, replicas in STRATEGIES[variant]:
        strategy = common.make_strategy(name, replicas)
        shared = tf.constant(7.0)
        with strategy.scope():
            variable = tf.Variable(3.0, name="v")

        functions = {
            "nothing": lambda: None,
            "same_number": lambda: 5,
            "same_text": lambda: "text",
            "same_tensor": lambda: shared,
            "new_tensors": lambda: tf.constant(1.0) + replica_id(),
            "equal_new_tensors": lambda: tf.constant(2.0) * 1.0,
            "numbers": lambda: 1000 + replica_id(),
            "variable": lambda: variable,
            "variable_value": lambda: variable + 1.0,
            "list": lambda: [5, tf.constant(1.0) + replica_id()],
            "tuple": lambda: (tf.constant(1.0) + replica_id(), (5, shared)),
            "dict": lambda: {"a": tf.constant(1.0) + replica_id(), "b": 5},
            "namedtuple": lambda: Pair(tf.constant(1.0) + replica_id(), [5]),
            "merge_result": lambda: tf.distribute.get_replica_context().merge_call(
                lambda s, x: s.reduce("SUM", x, axis=None), args=(tf.constant(2.0) + replica_id(),)),
            "different_lengths": lambda: [1] * (replica_id() + 1),
            "different_keys": lambda: {str(replica_id()): 1},
            "different_types": lambda: [1] if replica_id() == 0 else (1,),
        }
        for case, function in functions.items():
            def call():
                with strategy.scope():
                    returned = strategy.run(function)
                    local = strategy.experimental_local_results(returned)
                return {"returned": describe(strategy, returned),
                        "local_results": describe(strategy, local)}
            cases.append({"strategy": name, "replicas": replicas, "function": case,
                          **common.outcome(call, FRAGMENTS)})
    return common.numbered("XR", cases)


def in_own_thread(call):
    """The outcome of `call` on a new thread, so that scopes left open end with the thread."""
    outcomes = []

    def attempt():
        call()
        return {"ok": True}

    thread = threading.Thread(
        target=lambda: outcomes.append(common.outcome(attempt, FRAGMENTS)))
    thread.start()
    thread.join()
    return outcomes[0]


def misuse_cases():
    """Calls that are refused, and calls that could be expected to be refused but are not ("ok")."""
    one, other = common.mirrored(2), common.mirrored(2)
    with one.scope():
        variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
        values = common.per_replica(one, [tf.constant(1.0), tf.constant(2.0)])
    with other.scope():
        foreign = tf.Variable(1.0)
    plain = tf.Variable(1.0)
    sum_op = tf.distribute.ReduceOp.SUM
    kept = []
    one.run(lambda: kept.append(tf.distribute.get_replica_context()))

    def inside(strategy, action):
        with strategy.scope():
            return action()

    def merge(action):
        return one.run(lambda: tf.distribute.get_replica_context().merge_call(lambda s: action()))

    def unequal_merge_calls():
        def step():
            if replica_id() == 0:
                tf.distribute.get_replica_context().merge_call(lambda s: None)
        one.run(step)

    merge_nothing = tf.function(
        lambda: tf.distribute.get_replica_context().merge_call(lambda s: tf.constant(1.0)))

    def merge_call_in_lifted_function():
        tf.function(lambda: one.run(merge_nothing))()

    def merge_call_in_nested_function():
        tf.function(lambda: one.run(lambda: merge_nothing()))()

    def merge_call_in_nested_function_eager():
        one.run(lambda: merge_nothing())

    def merge_call_in_loop():
        def step():
            body = lambda i: [tf.distribute.get_replica_context().merge_call(
                lambda s, x: s.experimental_local_results(x)[0], args=(i + 1,))]
            return tf.while_loop(lambda i: i < 2, body, [tf.constant(0)])
        tf.function(lambda: one.run(step))()

    def fail():
        raise KeyError("a chosen message")

    def names_differ():
        def step():
            return tf.Variable(1.0, name=f"v{replica_id()}")
        inside(one, lambda: one.run(step))

    def leave_with_open(inner, default_device=None):
        """Leaves a strategy's scope while `inner`, entered after the scope, is still open."""
        strategy = common.mirrored(2)
        strategy.extended._default_device = default_device
        scope = strategy.scope()
        scope.__enter__()
        failure = None
        with inner:
            try:
                scope.__exit__(None, None, None)
            except RuntimeError as error:
                failure = error
        if failure is not None:
            scope.__exit__(None, None, None)
            raise failure

    def create_beside(target):
        with one.extended.colocate_vars_with(target):
            tf.Variable(1.0)

    def identity_creator(next_creator, **arguments):
        return next_creator(**arguments)

    def default_devices():
        return tf.distribute.get_strategy().extended.worker_devices

    # The text is the executed code, with `one` and `other` two strategies of two replicas each.
    calls = {
        "reduce_in_run": "one.run(lambda: one.reduce('SUM', tf.constant(1.0), axis=None))",
        "reduce_to_in_run":
            "one.run(lambda: one.extended.reduce_to(sum_op, tf.constant(1.0), 'CPU:0'))",
        "update_in_run": "one.run(lambda: one.extended.update(variable, lambda v: v.assign(2.0)))",
        "run_in_run": "one.run(lambda: one.run(lambda: 1))",
        "scope_in_run": "one.run(lambda: inside(one, lambda: 1))",
        "reduce_outside": "one.reduce('SUM', values, axis=None)",
        "reduce_to_outside": "one.extended.reduce_to(sum_op, values, 'CPU:0')",
        "batch_reduce_to_outside": "one.extended.batch_reduce_to(sum_op, [(values, 'CPU:0')])",
        "broadcast_to_outside": "one.extended.broadcast_to(tf.constant(1.0), 'CPU:0')",
        "gather_outside":
            "one.gather(common.per_replica(one, [tf.constant([1.0]), tf.constant([2.0])]), "
            "axis=0)",
        "update_outside": "one.extended.update(variable, lambda v: v.assign(2.0))",
        "assign_outside": "variable.assign(2.0)",
        "read_outside": "variable.read_value()",
        "run_outside": "one.run(lambda: 1)",
        "reduce_in_other_scope": "inside(other, lambda: one.reduce('SUM', values, axis=None))",
        "reduce_to_in_other_scope":
            "inside(other, lambda: one.extended.reduce_to(sum_op, values, 'CPU:0'))",
        "run_in_other_scope": "inside(other, lambda: one.run(lambda: 1))",
        "assign_in_other_scope": "inside(other, lambda: variable.assign(2.0))",
        "read_in_other_scope": "inside(other, lambda: variable.read_value())",
        "scope_in_other_scope": "inside(other, lambda: inside(one, lambda: 1))",
        "scope_in_same_scope": "inside(one, lambda: inside(one, lambda: 1))",
        "scope_in_merge_call": "merge(lambda: inside(one, lambda: 1))",
        "other_scope_in_merge_call": "merge(lambda: inside(other, lambda: 1))",
        "set_strategy_in_scope":
            "inside(one, lambda: tf.distribute.experimental_set_strategy(other))",
        "set_strategy_in_run": "one.run(lambda: tf.distribute.experimental_set_strategy(one))",
        "kept_context_merge_call": "kept[0].merge_call(lambda s: 1)",
        "kept_context_all_reduce": "kept[0].all_reduce('SUM', tf.constant(1.0))",
        "kept_context_in_scope": "inside(one, lambda: kept[0].merge_call(lambda s: 1))",
        "kept_context_in_run": "one.run(lambda: kept[0].merge_call(lambda s: 1))",
        "kept_context_in_other_run": "other.run(lambda: kept[0].merge_call(lambda s: 1))",
        "args_not_a_list": "one.run(lambda x: x, args=5)",
        "args_tensor": "one.run(lambda x: x, args=tf.constant([1.0]))",
        "args_list": "one.run(lambda x: x, args=[5])",
        "unequal_merge_calls": "unequal_merge_calls()",
        "merge_call_in_lifted_function": "merge_call_in_lifted_function()",
        "merge_call_in_nested_function": "merge_call_in_nested_function()",
        "merge_call_in_nested_function_eager": "merge_call_in_nested_function_eager()",
        "merge_call_in_loop": "merge_call_in_loop()",
        "replica_function_fails": "one.run(fail)",
        "merge_function_fails": "merge(fail)",
        "per_replica_to_tensor": "tf.convert_to_tensor(values)",
        "per_replica_to_tensor_in_scope": "inside(one, lambda: tf.convert_to_tensor(values))",
        "per_replica_to_tensor_in_run": "one.run(lambda: tf.convert_to_tensor(values))",
        "per_replica_cast_in_scope": "inside(one, lambda: tf.cast(values, tf.float64))",
        "per_replica_plus_number_in_scope": "inside(one, lambda: values + 1.0)",
        "per_replica_identity_in_scope": "inside(one, lambda: tf.identity(values))",
        "names_differ": "names_differ()",
        "device_scope_left_open": "leave_with_open(tf.device('CPU:1'), 'CPU:0')",
        "device_scope_left_open_without_default_device": "leave_with_open(tf.device('CPU:1'))",
        "creator_scope_left_open": "leave_with_open(tf.variable_creator_scope(identity_creator))",
        "variable_scope_left_open": "leave_with_open(tf.compat.v1.variable_scope('inner'))",
        "copy_strategy": "copy.copy(one)",
        "deepcopy_strategy": "copy.deepcopy(one)",
        "colocate_in_scope": "inside(one, lambda: create_beside(variable))",
        "colocate_outside": "create_beside(variable)",
        "colocate_in_run": "one.run(lambda: create_beside(variable))",
        "create_variable_outside": "tf.Variable(1.0)",
        "update_non_slot_outside":
            "one.extended.update_non_slot(one.extended.worker_devices, lambda: None)",
        "colocate_with_foreign_variable": "inside(one, lambda: create_beside(foreign))",
        "colocate_with_plain_variable": "inside(one, lambda: create_beside(plain))",
        "update_plain_variable":
            "inside(one, lambda: one.extended.update(plain, lambda v: v.assign(2.0)))",
        "update_foreign_variable":
            "inside(one, lambda: one.extended.update(foreign, lambda v: v.assign(2.0)))",
        "duplicate_devices": "tf.distribute.MirroredStrategy(['CPU:0', 'CPU:0'])",
        "remote_device_list":
            "tf.distribute.MirroredStrategy(['/job:worker/task:0/cpu:0', "
            "'/job:worker/task:1/cpu:0'])",
        "local_and_remote_devices":
            "tf.distribute.MirroredStrategy(['/cpu:0', '/job:worker/task:1/cpu:0'])",
        "default_worker_devices": "default_devices()",
    }
    cases = []
    names = {**globals(), **locals()}
    for name, code in calls.items():
        cases.append({"call": name, "python": code,
                      **in_own_thread(lambda: eval(code, names))})  # pylint: disable=eval-used
    return common.numbered("XM", cases)


def device_cases(variant):
    """worker_devices and the other properties of every strategy."""
    cases = []
    for name, replicas in STRATEGIES[variant]:
        if name == "default":
            continue
        strategy = common.make_strategy(name, replicas)
        extended = strategy.extended
        short = lambda devices: [d.split("device:")[-1] for d in devices]
        cases.append({
            "strategy": name, "replicas": replicas,
            "num_replicas_in_sync": strategy.num_replicas_in_sync,
            "worker_devices": short(extended.worker_devices),
            "parameter_devices": short(extended.parameter_devices),
            "between_graph": extended.experimental_between_graph,
            "should_init": extended.experimental_should_init,
            "should_checkpoint": extended.should_checkpoint,
            "should_save_summary": extended.should_save_summary})
    return common.numbered("XD", cases)


def generate(variant, out):
    sections = {"contexts": context_cases(variant), "run": run_cases(variant),
                "devices": device_cases(variant)}
    if variant == "public":
        sections["misuse"] = misuse_cases()
    common.write(out / "contexts.json", {}, **sections)
