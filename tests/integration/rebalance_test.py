"""cairnctl rebalance while a job trains: the model of a single worker is bit for bit the same as
without; plans move nothing; emptied servers hold nothing."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import npz  # noqa: E402
import processes  # noqa: E402
import scene  # noqa: E402
import tap  # noqa: E402

WAIT = 60
ROWS, USERS, FILMS, EPOCHS = 4000, 300, 200, 20
LONG = 4 * EPOCHS  # servers join and leave twice meanwhile, on a slow machine too


def await_variables(job, other, servers):
    """Waits until `job` has its variables. The servers have the job `other`."""
    def status(name):
        return processes.ctl("status", "--servers", servers, "--job", name)[0]
    # The status of a job is an error while the servers have other jobs only.
    processes.wait_for(lambda: job in status(other)["jobs"], WAIT, "the job")
    processes.wait_for(lambda: status(job)["variables"]["count"] >= 5, WAIT, "variables")


class RebalanceTest(scene.FolderTest):
    def job(self, name, epochs=EPOCHS):
        """Film ratings with Adam, whose step counts with every update; a few seconds on one
        core."""
        ratings = self.path("ratings.dat")
        draw = random.Random(5)
        if not os.path.exists(ratings):
            with open(ratings, "w", encoding="ascii") as f:
                for _ in range(ROWS):
                    f.write(f"{draw.randrange(USERS)}::{draw.randrange(FILMS)}::"
                            f"{draw.randrange(1, 6)}::0\n")
        path = self.path(name + ".yaml")
        with open(path, "w", encoding="ascii") as f:
            json.dump({"name": name, "model": {"type": "matrix_factorization", "factors": 4},
                       "data": {"format": "movielens", "train": [ratings], "batch_size": 8,
                                "epochs": epochs},
                       "optimizer": {"type": "adam", "learning_rate": 0.01}}, f)
        return path

    def export(self, name):
        return ["--export", self.path(name + ".npz")]

    def rebalance(self, cluster, job, *flags, code=0):
        return processes.ctl("rebalance", "--servers", ",".join(cluster.addresses), "--job", job,
                             "--busy_fraction", "1", *flags, code=code)[0]

    def test_a_model_is_the_same_as_without(self):
        with processes.Cluster(self.folder, 3) as cluster:
            file = cluster.worker_file(1)
            processes.run_worker(self.job("plain"), file, flags=self.export("plain"))
            moving = subprocess.Popen(processes.worker_command(self.job("moving"), file,
                                                               flags=self.export("moving")),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(processes.end, moving)
            moves, emptied = 0, 0

            await_variables("moving", "plain", ",".join(cluster.addresses))
            while moving.poll() is None:
                answer = self.rebalance(cluster, "moving", "--empty", f"ps:{emptied % 3}")
                moves += sum(move["moved"] for move in answer["moves"])
                emptied += 1
            out, log = moving.communicate(timeout=WAIT)
            self.assertEqual(moving.returncode, 0, log)
            self.assertEqual(json.loads(out.splitlines()[-1])["status"], "completed")
            self.assertGreater(moves, 10)
            plain, moved = (npz.by_key(npz.read(self.path(name + ".npz")))
                            for name in ("plain", "moving"))
            self.assertEqual(plain.keys(), moved.keys())
            for name, values in plain.items():
                self.assertEqual(values, moved[name], name)
            # Emptied servers hold nothing, and even placements stay.
            self.rebalance(cluster, "moving", "--empty", "ps:1")
            answer = self.rebalance(cluster, "moving", "--empty", "ps:1", "--plan")
            self.assertEqual(answer["servers"][1]["bytes"], 0)
            self.assertEqual(answer["moves"], [])

    def test_servers_join_and_leave(self):
        """The worker keeps the original cluster file all the time."""
        with processes.Cluster(self.folder, 2) as cluster:
            file = cluster.worker_file(1)
            first = ",".join(cluster.addresses)

            def ctl(*words, code=0):
                return processes.ctl(*words, "--servers", first, code=code)[0]
            processes.run_worker(self.job("plain", LONG), file, flags=self.export("plain"))
            changing = subprocess.Popen(
                processes.worker_command(self.job("changing", LONG), file,
                                         flags=self.export("changing")),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(processes.end, changing)
            await_variables("changing", "plain", first)
            joins = 0
            while changing.poll() is None:
                guest = 2 + joins
                joins += 1
                cluster.reach(guest)
                cluster.spawn(guest)
                cluster.wait_until_ready(guest)
                task = f"ps:{guest}"
                listed = ctl("servers", "add", task, "--address", cluster.addresses[guest])
                self.assertEqual([s["state"] for s in listed["servers"]],
                                 ["member"] * 2 + ["left"] * (joins - 1) + ["member"])
                for job in "plain", "changing":
                    ctl("rebalance", "--busy_fraction", "1", "--job", job)
                if joins == 1:
                    self.assertIn("has rows of", ctl("servers", "remove", task, code=1)["error"])
                for job in "plain", "changing":
                    ctl("rebalance", "--busy_fraction", "1", "--job", job, "--empty", task)
                listed = ctl("servers", "remove", task)
                self.assertEqual(listed["servers"][guest]["state"], "left")
                cluster.stop(guest)
            out, log = changing.communicate(timeout=WAIT)
            self.assertEqual(changing.returncode, 0, log)
            self.assertEqual(json.loads(out.splitlines()[-1])["status"], "completed")
            self.assertGreater(joins, 1)
            self.assertEqual(len(ctl("status", "--job", "changing")["servers"]), 2)
            benched = ctl("bench", "--mib", "1", "--seconds", "0.01")["servers"]
            self.assertEqual([s["server"] for s in benched], ["ps:0", "ps:1"])
            plain, changed = (npz.by_key(npz.read(self.path(name + ".npz")))
                              for name in ("plain", "changing"))
            self.assertEqual(plain.keys(), changed.keys())
            for name, values in plain.items():
                self.assertEqual(values, changed[name], name)

    def test_load_is_evened_out(self):
        """Everything is on one server while a worker trains; half of its load moves away."""
        with processes.Cluster(self.folder, 2) as cluster:
            worker = subprocess.Popen(processes.worker_command(self.job("busy", 100 * LONG),
                                                               cluster.worker_file(1)),
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(processes.end, worker)

            def there():
                return processes.ctl("status", "--servers", ",".join(cluster.addresses), "--job",
                                     "busy")[0]["variables"]["count"] >= 5
            processes.wait_for(there, WAIT, "variables")
            self.rebalance(cluster, "busy", "--empty", "ps:1")

            def by_load(*flags):
                return self.rebalance(cluster, "busy", "--by", "load", "--watch_seconds", "1",
                                      *flags)
            first = by_load()
            loads = [server["load_bytes_per_second"] for server in first["servers"]]
            planned = [server["planned_load_bytes_per_second"] for server in first["servers"]]
            self.assertGreater(loads[0], 0)
            self.assertEqual(loads[1], 0)
            self.assertEqual(sum(planned), loads[0])
            self.assertLess(max(planned), 0.6 * loads[0])
            self.assertTrue(all(move["moved"] for move in first["moves"]), first)
            self.assertEqual(sum(move["load_bytes_per_second"] for move in first["moves"]),
                             planned[1])
            loads = [server["load_bytes_per_second"] for server in by_load("--plan")["servers"]]
            self.assertLess(max(loads), 0.7 * sum(loads), loads)

    def test_a_plan_moves_nothing(self):
        with processes.Cluster(self.folder, 2) as cluster:
            processes.run_worker(self.job("plain"), cluster.worker_file(1))
            before = self.rebalance(cluster, "plain", "--plan", "--empty", "ps:0")
            self.assertNotEqual(before["moves"], [])
            self.assertNotIn("moved", before["moves"][0])
            self.assertEqual(before["total"]["moves"], len(before["moves"]))
            for what in ("pieces", "bytes"):
                self.assertEqual(before["total"][what], sum(m[what] for m in before["moves"]))
            self.assertEqual(self.rebalance(cluster, "plain", "--plan", "--empty", "ps:0"), before)

    def test_invalid_moves_are_refused(self):
        with processes.Cluster(self.folder, 2) as cluster:
            processes.run_worker(self.job("plain"), cluster.worker_file(1))
            for job, words, code, why in [
                    ("plain", ["--empty", "ps:2"], 2,
                     "'ps:2' is not a server of this cluster (ps:0 to ps:1)"),
                    ("plain", ["--empty", "ps:0", "--empty", "ps:1"], 2, "one has to keep the rows"),
                    ("plain", ["--tolerance", "-1"], 2, "--tolerance is 0 or more"),
                    ("plain", ["--by", "cpu"], 2, "--by is memory or load, not 'cpu'"),
                    ("plain", ["--watch_seconds", "0"], 2, "--watch_seconds is from 0.1 to 3600"),
                    ("plain", ["--by", "load", "--watch_seconds", "0.1"], 1,
                     "no worker pulled or pushed rows of job plain"),
                    ("nobody", [], 1, "no variables of job nobody")]:
                answer = self.rebalance(cluster, job, *words, code=code)
                self.assertIn(why, answer["error"], words)


if __name__ == "__main__":
    tap.main()
