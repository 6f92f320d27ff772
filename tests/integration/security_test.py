"""A cluster under TLS with real processes: certificates of cairnctl certs, a job that trains,
roles, a revoked token, a stock Thrift client in Python, and refusals that state the reason."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

try:
    from thrift.protocol import TBinaryProtocol
    from thrift.transport import TSSLSocket, TTransport
    from cairn_wire import Authentication, ParameterServer, ttypes
    MISSING = None
except ImportError as error:  # python3-thrift belongs to /usr/bin/python3
    MISSING = str(error)

CTL = os.environ["CAIRNCTL"]
TOKEN = "0123456789abcdef0123456789abcdef"
WAIT = 60


class SecurityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.tls = os.path.join(cls.folder, "tls")
        plan = os.path.join(cls.folder, "plan.yaml")
        with open(plan, "w", encoding="ascii") as f:
            json.dump({"cluster": {"ps": [addresses.nobodys_address(1), addresses.nobodys_address(2)],
                                   "worker": ["w0:1"]}}, f)
        subprocess.run([CTL, "certs", cls.tls, "--cluster", plan], check=True, timeout=WAIT,
                       stdout=subprocess.DEVNULL)
        cls.tokens = os.path.join(cls.folder, "tokens")
        cls.write_secret(cls.tokens, f"{TOKEN} reader python\n")
        # Both servers are on one host, so one certificate serves both.
        cls.cluster = processes.Cluster(cls.folder, 2, [
            *cls.flags("ps-0"), "--accepted_tokens", cls.tokens, "--durability=off"])
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.__enter__()
        cls.cluster_file = cls.cluster.worker_file(1)

    @staticmethod
    def write_secret(path, text):
        with open(path + ".part", "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path + ".part", 0o600)
        os.rename(path + ".part", path)

    @classmethod
    def flags(cls, name):
        return ["--tls_certificate", os.path.join(cls.tls, name + ".crt"),
                "--tls_key", os.path.join(cls.tls, name + ".key"),
                "--tls_ca", os.path.join(cls.tls, "ca.crt")]

    def ctl(self, *arguments, code=0):
        done = subprocess.run([CTL, *arguments, "--json"], capture_output=True, text=True,
                              timeout=WAIT, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def job(self, name):
        rows = os.path.join(self.folder, "rows.libsvm")
        scene.write_comparisons(rows, 500)
        path = os.path.join(self.folder, name + ".yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": name, "model": {"type": "linear"},
                       "data": {"format": "libsvm", "features": 4, "train": [rows],
                                "batch_size": 50, "epochs": 2},
                       "optimizer": {"type": "adagrad", "learning_rate": 0.5}}, f)
        return path

    def train(self, job, *flags):
        return subprocess.run(processes.worker_command(job, self.cluster_file, 0, flags),
                              capture_output=True, text=True, timeout=WAIT, check=False)

    def test_a_job_trains_and_a_reader_inspects_it(self):
        job = self.job("trained")
        done = self.train(job, *self.flags("worker-0"))
        self.assertEqual(done.returncode, 0, done.stderr)
        where = ["--cluster", self.cluster_file, "--job", "trained"]
        reader = self.flags("reader")
        self.assertNotIn("error", self.ctl("inspect", *where, *reader))
        exported = os.path.join(self.folder, "model.npz")
        self.ctl("export", exported, *where, *reader)
        self.assertTrue(os.path.getsize(exported) > 0)
        refused = self.ctl("checkpoint", "create", *where, *reader, self.folder, code=1)
        self.assertIn("role reader", refused["error"])
        self.assertIn("checkpoint is for admin", refused["error"])
        self.ctl("checkpoint", "create", *where, *self.flags("admin"), self.folder)
        findings = self.ctl("doctor", "--cluster", self.cluster_file, "--data_dir", self.folder,
                            *reader)["findings"]
        self.assertIn("answers", " ".join(f["found"] for f in findings if "ps:0" in f["what"]))
        plain = self.ctl("doctor", "--cluster", self.cluster_file, "--data_dir", self.folder,
                         code=1)["findings"]
        first = next(f for f in plain if "ps:0" in f["what"])
        self.assertIn("accepts only TLS", first["found"])
        self.assertIn("the server runs", first["fix"])

    def test_a_worker_without_tls_and_one_of_the_wrong_role_end_at_once(self):
        job = self.job("refused")
        plain = self.train(job)
        self.assertEqual(plain.returncode, 1)
        self.assertIn("accepts only TLS", plain.stderr.splitlines()[-1])
        reader = self.train(job, *self.flags("reader"))
        self.assertEqual(reader.returncode, 1)
        self.assertIn("role reader", reader.stderr.splitlines()[-1])
        missing = self.train(job, "--tls_certificate", "nowhere.crt")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("--tls_key is missing", missing.stderr.splitlines()[-1])
        alone = subprocess.run([processes.WORKER, "--job", job, *self.flags("worker-0")],
                               capture_output=True, text=True, timeout=WAIT, check=False)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("this task makes none", alone.stderr.splitlines()[-1])
        self.assertIn("accepts only TLS, and 127.0.0.1",
                      self.cluster.log(0) + self.cluster.log(1))

    @unittest.skipIf(MISSING, f"Thrift's Python library: {MISSING}")
    def test_a_stock_client_speaks_tls_with_a_token_that_is_revoked(self):
        host, port = self.cluster.addresses[0].rsplit(":", 1)
        holder = {"certfile": os.path.join(self.tls, "reader.crt"),
                  "keyfile": os.path.join(self.tls, "reader.key"),
                  "ca_certs": os.path.join(self.tls, "ca.crt")}

        def connect():
            transport = TTransport.TBufferedTransport(
                TSSLSocket.TSSLSocket(host, int(port), **holder))
            transport.open()
            self.addCleanup(transport.close)
            protocol = TBinaryProtocol.TBinaryProtocol(transport)
            return Authentication.Client(protocol), ParameterServer.Client(protocol)

        caller = ttypes.Caller(job="python")
        _, server = connect()
        self.assertEqual(server.why(caller).waiting, [])
        with self.assertRaises(ttypes.ServerError) as caught:
            server.drop_job(caller)
        self.assertEqual(caught.exception.code, ttypes.ErrorCode.PERMISSION_DENIED)
        self.assertIn("drop_job is for admin", caught.exception.message)
        authentication, server = connect()
        identity = authentication.authenticate(TOKEN)
        self.assertEqual((identity.roles, identity.name), (["reader"], "python"))
        self.assertEqual(server.why(caller).waiting, [])
        self.write_secret(self.tokens, "another-token-altogether reader python\n")
        self.addCleanup(self.write_secret, self.tokens, f"{TOKEN} reader python\n")
        with self.assertRaises(ttypes.ServerError) as caught:
            server.why(caller)
        self.assertEqual(caught.exception.code, ttypes.ErrorCode.UNAUTHENTICATED)
        self.assertIn("revoked", caught.exception.message)

    def test_a_worker_continues_when_its_token_is_replaced(self):
        job, own = self.job("rotated"), os.path.join(self.folder, "own-token")
        steps = os.path.join(self.folder, "rotated.jsonl")
        tokens = [f"{number}-token-of-the-worker-{number}" for number in range(3)]
        self.addCleanup(self.write_secret, self.tokens, f"{TOKEN} reader python\n")

        def accept(*those):
            self.write_secret(self.tokens, "".join(f"{t} worker,admin\n" for t in those))

        def size():
            return os.path.getsize(steps) if os.path.exists(steps) else 0
        accept(tokens[0])
        self.write_secret(own, tokens[0])
        log = open(os.path.join(self.folder, "rotated.log"), "w+", encoding="utf-8")
        self.addCleanup(log.close)
        worker = subprocess.Popen(
            processes.worker_command(job, self.cluster_file, 0, [
                *self.flags("reader"), "--token_file", own, "--metrics_file", steps,
                "--set", "data.epochs=1000000"]), stdout=log, stderr=log)
        self.addCleanup(processes.end, worker)
        processes.wait_for(lambda: size() > 0, WAIT, "the first steps")
        for old, new in zip(tokens, tokens[1:]):
            accept(old, new)
            self.write_secret(own, new)
            accept(new)
            before = size()
            processes.wait_for(lambda: size() > before + 20000, WAIT, "some hundred steps more")
        worker.terminate()
        log.seek(0)
        self.assertEqual(worker.wait(WAIT), 143, log.read())
        log.seek(0)
        self.assertIn("revoked", log.read())

    def test_an_address_that_others_reach_needs_tls(self):
        plan = os.path.join(self.folder, "open.yaml")
        with open(plan, "w", encoding="ascii") as f:
            json.dump({"cluster": {"ps": [f"0.0.0.0:{addresses.own_port()}"]}}, f)
        command = [processes.PS, "--cluster", plan, "--task_index", "0", "--data_dir",
                   os.path.join(self.folder, "open")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--tls_certificate", done.stderr.splitlines()[-1])

    def test_missing_files_are_named_before_a_store_is_opened(self):
        plan, folder = os.path.join(self.folder, "one.yaml"), os.path.join(self.folder, "unopened")
        with open(plan, "w", encoding="ascii") as f:
            json.dump({"cluster": {"ps": [addresses.own_address()]}}, f)
        done = subprocess.run([processes.PS, "--cluster", plan, "--task_index", "0", "--data_dir",
                               folder, "--accepted_tokens", folder + ".tokens"],
                              capture_output=True, text=True, timeout=WAIT, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(folder + ".tokens", done.stderr.splitlines()[-1])
        self.assertFalse(os.path.exists(folder))


if __name__ == "__main__":
    tap.main()
