"""A client that stock Thrift generates from the IDL, in Python and with Thrift's own binary
protocol and buffered transport, uses a real cairn-ps: it creates variables, assigns, pushes, pulls
and reads errors; SIGTERM ends a server in a long restore."""
import os
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

try:
    from thrift.protocol import TBinaryProtocol
    from thrift.transport import TSocket, TTransport
    from cairn_wire import ParameterServer, ttypes
    from cairn_wire.constants import PROTOCOL_VERSION
    MISSING = None
except ImportError as error:  # python3-thrift belongs to /usr/bin/python3
    MISSING = str(error)

JOB = "python"


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def keys(*values):
    return struct.pack(f"<{len(values)}q", *values)


def unpack(payload):
    return list(struct.unpack(f"<{len(payload) // 4}f", payload))


def sgd(rate):
    return ttypes.Optimizer(type="sgd", learning_rate=ttypes.Schedule(
        type="constant", arguments={"learning_rate": rate}))


def connect(test, cluster, accelerated=False):
    """A client of the cluster's first server, until the end of `test`."""
    host, port = cluster.addresses[0].rsplit(":", 1)
    socket = TSocket.TSocket(host, int(port))
    socket.setTimeout(20000)
    transport = TTransport.TBufferedTransport(socket)
    kind = (TBinaryProtocol.TBinaryProtocolAccelerated if accelerated
            else TBinaryProtocol.TBinaryProtocol)
    transport.open()
    test.addCleanup(transport.close)
    return ParameterServer.Client(kind(transport))


@unittest.skipIf(MISSING, f"Thrift's Python library: {MISSING}")
@unittest.skipUnless(os.path.exists(processes.PS), f"{processes.PS} is not built")
class StockClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = processes.Cluster.of_class(
            cls, 1, ["--durability=off", "--max_message_bytes=4194304"])

    def setUp(self):
        self.client = self.connect()
        self.caller = ttypes.Caller(job=JOB)
        self.addCleanup(self.client.drop_job, self.caller)

    def connect(self, accelerated=False):
        return connect(self, self.cluster, accelerated)

    def create(self, *specs):
        self.client.create_variables(self.caller, list(specs))

    def pull(self, *items, client=None):
        reply = (client or self.client).pull(
            ttypes.PullRequest(caller=self.caller, items=list(items)))
        return [unpack(item.values) for item in reply.items]

    def dense(self, name="w"):
        return ttypes.VariableSpec(name=name, shape=[3, 2], optimizer=sgd(0.5),
                                   initializer=ttypes.Initializer(
                                       type="constant", arguments={"value": 1.0}))

    def test_hello_returns_the_version_and_refuses_others(self):
        reply = self.client.hello(ttypes.HelloRequest(
            protocol_version=PROTOCOL_VERSION, job=JOB, task_type="test", origin="python"))
        self.assertEqual(reply.protocol_version, PROTOCOL_VERSION)
        self.assertEqual(reply.durability, "off")
        self.assertGreater(reply.state.boot_id, 0)
        with self.assertRaises(ttypes.ServerError) as caught:
            self.client.hello(ttypes.HelloRequest(protocol_version=99, job=JOB))
        self.assertIn("99", caught.exception.message)

    def test_a_dense_variable_is_created_pushed_and_pulled(self):
        self.create(self.dense())
        self.create(self.dense())  # again, with the same spec
        reply = self.client.push(ttypes.PushRequest(caller=self.caller, items=[
            ttypes.PushItem(variable="w", values=floats(1, 2, 3, 4, 5, 6))]))
        self.assertEqual([item.version for item in reply.items], [1])
        whole = ttypes.PullItem(variable="w")
        row = ttypes.PullItem(variable="w", selection=ttypes.Selection.ROWS, ids=keys(2, 0, 2))
        self.assertEqual(self.pull(whole, row), [[0.5, 0, -0.5, -1, -1.5, -2],
                                                 [-1.5, -2, 0.5, 0, -1.5, -2]])
        self.assertEqual(self.pull(whole, client=self.connect(accelerated=True)),
                         [[0.5, 0, -0.5, -1, -1.5, -2]])

    def test_an_embedding_table_is_pushed_and_pulled_by_key(self):
        self.create(ttypes.VariableSpec(
            name="emb", kind=ttypes.VariableKind.EMBEDDING, shape=[2], optimizer=sgd(1.0),
            touched_rows=ttypes.TouchedRows.PUSHED))
        step = self.client.step(ttypes.StepRequest(
            push=ttypes.PushRequest(caller=self.caller, items=[ttypes.PushItem(
                variable="emb", selection=ttypes.Selection.KEYS, ids=keys(7, -9, 7),
                values=floats(1, 1, 2, 2, 3, 3))]),
            pull=ttypes.PullRequest(caller=self.caller, items=[ttypes.PullItem(
                variable="emb", selection=ttypes.Selection.KEYS, ids=keys(-9, 5, 7))])))
        self.assertEqual(unpack(step.pull.items[0].values), [-2, -2, 0, 0, -4, -4])

    def test_assigned_values_are_pulled(self):
        self.create(self.dense())
        self.client.assign(ttypes.AssignRequest(caller=self.caller, items=[ttypes.AssignItem(
            variable="w", selection=ttypes.Selection.ROWS, ids=keys(1), values=floats(8, 9))]))
        self.assertEqual(self.pull(ttypes.PullItem(variable="w")), [[1, 1, 8, 9, 1, 1]])
        described = self.client.describe(ttypes.DescribeRequest(caller=self.caller))
        self.assertEqual([info.spec.name for info in described.variables], ["w"])
        self.assertEqual(described.variables[0].spec.shape, [3, 2])

    def test_errors_carry_code_and_text(self):
        with self.assertRaises(ttypes.ServerError) as caught:
            self.pull(ttypes.PullItem(variable="nobody"))
        self.assertEqual(caught.exception.code, ttypes.ErrorCode.NOT_FOUND)
        self.assertIn("nobody", caught.exception.message)
        self.create(self.dense())
        with self.assertRaises(ttypes.ServerError) as caught:
            self.client.push(ttypes.PushRequest(caller=self.caller, items=[
                ttypes.PushItem(variable="w", values=floats(1, 2, 3))]))
        self.assertEqual(caught.exception.code, ttypes.ErrorCode.INVALID_ARGUMENT)
        # Neither error has harmed the connection.
        self.assertEqual(self.pull(ttypes.PullItem(variable="w")), [[1] * 6])

    def test_a_limit_is_named(self):
        with self.assertRaises(ttypes.ServerError) as caught:
            self.connect().push(ttypes.PushRequest(caller=self.caller, items=[
                ttypes.PushItem(variable="w", values=bytes(5 << 20))]))
        self.assertEqual(caught.exception.reason, ttypes.ErrorReason.LIMIT)
        self.assertIn("max_message_bytes", caught.exception.message)


@unittest.skipIf(MISSING, f"Thrift's Python library: {MISSING}")
@unittest.skipUnless(os.path.exists(processes.PS), f"{processes.PS} is not built")
class StoppedServer(unittest.TestCase):
    def test_sigterm_ends_a_restore_that_would_take_hours(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        cluster = self.enterContext(processes.Cluster(folder, 1))
        (server,) = cluster.processes
        sparse = os.path.join(folder, "sparse")
        with open(sparse, "wb") as f:
            f.truncate(1 << 42)
        request = ttypes.RestoreRequest(
            caller=ttypes.Caller(job="restored"), from_job="job", folders=[ttypes.RestoreFolder(
                path=folder, files=[ttypes.CheckpointFile(name="sparse", bytes=1 << 42)])])
        connect(self, cluster).send_restore(request)

        def is_reading():
            opened = f"/proc/{server.pid}/fd"
            for fd in os.listdir(opened):
                try:
                    if os.readlink(os.path.join(opened, fd)) == os.path.realpath(sparse):
                        return True
                except FileNotFoundError:
                    pass  # closed in the meantime
            return False

        processes.wait_for(is_reading, processes.START_SECONDS, "the restore to read")
        server.terminate()
        self.assertEqual(server.wait(processes.START_SECONDS), 0, cluster.log(0))


if __name__ == "__main__":
    tap.main()
