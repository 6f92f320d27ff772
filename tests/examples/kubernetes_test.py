"""The manifests of examples/kubernetes: they match the schemas that Kubernetes publishes, the names
in their cluster file are those of their Services, the resolver finds the same tasks in a list of
their pods, and their exact command lines train a9a here, except for addresses and directories."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import addresses  # noqa: E402
import processes  # noqa: E402
import python_packages  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop())
FOLDER = os.path.join(processes.TOP, "examples", "kubernetes")
FILES = sorted(glob.glob(os.path.join(FOLDER, "*.yaml")))
# The oldest release with the features that the manifests use (backoffLimitPerIndex), and the newest
# known.
RELEASES = ("1.29.0", "1.37.0")
VALIDATOR = "kubernetes-validate==1.37.0"


def manifests():
    found = {}
    for path in FILES:
        with open(path, encoding="utf-8") as f:
            for one in yaml.safe_load_all(f):
                found[one["kind"], one["metadata"]["name"]] = one
    return found


MANIFESTS = manifests()
PS, WORKER = MANIFESTS["StatefulSet", "cairn-ps"], MANIFESTS["Job", "cairn-worker"]
JOB_CONFIG = MANIFESTS["ConfigMap", "cairn-job"]["data"]
TASKS = {"ps": (PS, PS["spec"]["replicas"]), "worker": (WORKER, WORKER["spec"]["completions"])}


def container(manifest):
    (only,) = manifest["spec"]["template"]["spec"]["containers"]
    return only


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def mount_of(pod, claim):
    (volume,) = [volume for volume in pod["volumes"]
                 if volume.get("persistentVolumeClaim", {}).get("claimName") == claim]
    (one,) = pod["containers"]
    (mount,) = [mount for mount in one["volumeMounts"] if mount["name"] == volume["name"]]
    return mount


def readme():
    with open(os.path.join(FOLDER, "README.md"), encoding="utf-8") as f:
        return f.read()


def address(manifest, index):
    """The address of a pod for others: its own name below the headless Service that governs it."""
    template = manifest["spec"]["template"]
    service = MANIFESTS["Service", manifest["spec"].get("serviceName")
                        or template["spec"]["subdomain"]]
    assert service["spec"]["clusterIP"] == "None", service
    assert matches(service["spec"]["selector"], template["metadata"]["labels"]), service
    inside = {port["name"]: port["containerPort"] for port in container(manifest)["ports"]}
    outside = {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
    inside.pop("health", None)  # the kubelet probes the pod directly
    assert inside == outside, (inside, outside)
    port = container(manifest)["ports"][0]
    return (f"{manifest['metadata']['name']}-{index}.{service['metadata']['name']}"
            f":{port['containerPort']}")


class KubernetesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cairn-kubernetes.")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        return path

    def worker(self, *flags):
        done = subprocess.run([processes.WORKER, *flags], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_they_match_the_published_schemas(self):
        python = python_packages.python_with(BUILD, "kubernetes", VALIDATOR)
        for release in RELEASES:
            done = subprocess.run([python, "-m", "kubernetes_validate", "--strict", "-k", release,
                                   *FILES], capture_output=True, text=True, timeout=120,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual((done.stdout + done.stderr).count(" passed for "), len(MANIFESTS))
        wrong = self.path("wrong.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"
                          "spec: {ports: [{prot: 1}]}\n")
        done = subprocess.run([python, "-m", "kubernetes_validate", "--strict", wrong],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertNotEqual(done.returncode, 0, "the validator refuses nothing")

    def test_every_file_names_the_image_of_this_release(self):
        texts = {path: "" for path in (*FILES, os.path.join(FOLDER, "README.md"),
                                       os.path.join(processes.TOP, "Dockerfile"))}
        for path in texts:
            with open(path, encoding="utf-8") as f:
                texts[path] = f.read()
        with open(os.path.join(processes.TOP, "meson.build"), encoding="utf-8") as f:
            release = re.search(r"version : '([0-9.]+)'", f.read())[1]
        images = {os.path.basename(path): re.findall(r"registry\.example/\S+", text)
                  for path, text in texts.items()}
        image = f"registry.example/cairn:{release}"
        self.assertEqual({name: found for name, found in images.items() if found},
                         {"data.yaml": [image], "ps.yaml": [image], "worker.yaml": [image],
                          "Dockerfile": [image],
                          "README.md": [image] * 2})  # built, then pushed

    def test_the_cluster_file_has_the_names_that_the_services_give(self):
        printed = self.worker("--cluster_resolver", "file", "--print_cluster", "--cluster",
                              self.path("cluster.yaml", JOB_CONFIG["cluster.yaml"]))
        self.assertEqual(printed["cluster"], {
            job: [address(manifest, i) for i in range(count)]
            for job, (manifest, count) in TASKS.items()})

    def test_selectors_find_their_pods(self):
        for kind, name in [("PodDisruptionBudget", "cairn-ps"), ("NetworkPolicy", "cairn-ps")]:
            spec = MANIFESTS[kind, name]["spec"]
            selector = spec.get("selector") or spec["podSelector"]
            for job, (manifest, _) in TASKS.items():
                labels = manifest["spec"]["template"]["metadata"]["labels"]
                self.assertEqual(matches(selector["matchLabels"], labels), job == "ps", kind)
        selector = PS["spec"]["selector"]["matchLabels"]
        self.assertTrue(matches(selector, PS["spec"]["template"]["metadata"]["labels"]))

    def test_the_resolver_finds_the_same_tasks_in_a_list_of_the_pods(self):
        pods, expected = [], {}
        for job, (manifest, count) in TASKS.items():
            port = container(manifest)["ports"][0]
            for index in range(count):
                ip = f"10.0.{len(expected)}.{index + 1}"
                name = f"{manifest['metadata']['name']}-{index}"
                pods.append({
                    "metadata": {"name": name + ("" if job == "ps" else "-x7k2p"),
                                 "labels": manifest["spec"]["template"]["metadata"]["labels"]},
                    "status": {"phase": "Running", "podIP": ip, "hostIP": "10.1.0.1"}})
                expected.setdefault(job, []).append(f"{ip}:{port['containerPort']}")
        component = "app.kubernetes.io/component"
        printed = self.worker(
            "--cluster_resolver", "kubernetes", "--cluster",
            self.path("pods.json", json.dumps({"kind": "List", "items": pods})),
            "--cluster_jobs", f"ps:{component}=ps;worker:{component}=worker",
            "--cluster_port", str(port["containerPort"]), "--task_type", "worker",
            "--task_index", "1", "--print_cluster")
        self.assertEqual(printed["cluster"], expected)

    def test_the_pod_of_the_data_fills_the_claim_that_the_workers_read(self):
        workers = WORKER["spec"]["template"]["spec"]
        path = mount_of(workers, "cairn-data")["mountPath"]
        self.assertIn(("PersistentVolumeClaim", "cairn-data"), MANIFESTS)
        self.assertIn(f"--data_root={path}", container(WORKER)["args"])
        filler = MANIFESTS["Pod", "cairn-data"]
        self.assertEqual(mount_of(filler["spec"], "cairn-data")["mountPath"], path)
        self.assertEqual(filler["spec"]["securityContext"], workers["securityContext"])
        self.assertFalse(matches(PS["spec"]["selector"]["matchLabels"],
                                 filler["metadata"]["labels"]))
        (source, target) = re.search(r"kubectl cp (\S+) cairn-data:(\S+)", readme()).groups()
        job = yaml.safe_load(JOB_CONFIG["job.yaml"])
        for pattern in job["data"]["train"] + job["data"]["eval"]:
            inside = os.path.relpath(os.path.join(path, pattern), target)
            self.assertTrue(glob.glob(os.path.join(processes.TOP, source, inside)), pattern)

    def test_every_pod_of_the_job_can_write_checkpoints(self):
        directory = yaml.safe_load(JOB_CONFIG["job.yaml"])["checkpoint"]["directory"]
        self.assertIn(("PersistentVolumeClaim", "cairn-checkpoints"), MANIFESTS)
        for manifest in (PS, WORKER):
            mount = mount_of(manifest["spec"]["template"]["spec"], "cairn-checkpoints")
            self.assertEqual(mount["mountPath"], directory)
            self.assertFalse(mount.get("readOnly", False))

    def commands_in_a_servers_pod(self, places):
        """README's commands of cairnctl in the pod cairn-ps-0, with paths of this machine."""
        (flags,) = re.findall(r'^    flags="(.*)"$', readme(), re.M)
        lines = re.findall(r"^    kubectl exec cairn-ps-0 -- cairnctl (.*)$", readme(), re.M)
        for line in lines:
            words = line.replace("$flags", flags).split()
            for there, here in places.items():
                words = [here + word[len(there):] if word.startswith(there) else word
                         for word in words]
            yield [processes.CTL, *words]

    def test_probes_use_existing_ports(self):
        one = container(PS)
        ports = {port["name"]: port["containerPort"] for port in one["ports"]}
        for probe, path in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]:
            self.assertEqual(one[probe]["httpGet"]["path"], path)
            # Not the port of the pages, which other pods reach: slow requests there would fail a
            # probe.
            self.assertEqual(one[probe]["httpGet"]["port"], "health")
        self.assertIn(f"--http_port={ports['http']}", one["args"])
        self.assertIn(f"--health_port={ports['health']}", one["args"])
        admitted = [port["port"] for rule in MANIFESTS["NetworkPolicy", "cairn-ps"]["spec"]["ingress"] for port in rule["ports"]]
        self.assertNotIn("health", admitted)

    def certificates(self, cluster_file):
        """The results of README's steps: {kind: the directory of its Secret}, and {name: hosts}."""
        done = subprocess.run([processes.CTL, "certs", self.path("tls"), "--cluster", cluster_file,
                               "--json"], capture_output=True, check=True, timeout=60)
        hosts = {one["name"]: one["hosts"] for one in json.loads(done.stdout)["certificates"]}
        folders = {}
        for job, (manifest, _) in TASKS.items():
            (secret,) = [volume["secret"] for volume in manifest["spec"]["template"]["spec"]["volumes"]
                         if "secret" in volume]
            self.assertEqual(secret, {"secretName": f"cairn-{job}-tls", "defaultMode": 0o440})
            folders[job] = self.path(job + "-tls")
            os.mkdir(folders[job])
            for path in [self.path("tls/ca.crt"), *glob.glob(self.path(f"tls/{job}-*"))]:
                shutil.copy(path, folders[job])
                os.chmod(os.path.join(folders[job], os.path.basename(path)), secret["defaultMode"])
        return folders, hosts

    def test_each_servers_certificate_is_for_its_name(self):
        _, hosts = self.certificates(self.path("plan.yaml", JOB_CONFIG["cluster.yaml"]))
        for index in range(TASKS["ps"][1]):
            self.assertEqual(hosts[f"ps-{index}"], [address(PS, index).rsplit(":", 1)[0]])

    def command(self, manifest, index, places):
        """The command of a pod, with paths of this machine in place of the pod's."""
        one = container(manifest)
        program = {"cairn-ps": processes.PS, "cairn-worker": processes.WORKER}[one["command"][0]]
        self.assertEqual(one["command"][1:], [])
        known = {variable["name"] for variable in one["env"]}
        words = []
        for word in one["args"]:
            self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", word)), known, word)
            word = word.replace("$(TASK_INDEX)", str(index)).replace("=0.0.0.0", f"={addresses.own_host()}")
            if word.startswith(("--http_port=", "--health_port=")):
                word = f"{word.partition('=')[0]}={addresses.own_port()}"
            for there, here in places.items():
                word = word.replace(f"={there}", f"={here}")
            words.append(word)
        return [program, *words]

    def test_the_exact_commands_train_a9a(self):
        cluster = yaml.safe_load(JOB_CONFIG["cluster.yaml"])["cluster"]
        servers = addresses.own_addresses(len(cluster["ps"]))
        text = JOB_CONFIG["cluster.yaml"]
        for there, here in zip(cluster["ps"], servers):
            text = text.replace(there, here)
        places = {"/etc/cairn/cluster.yaml": self.path("cluster.yaml", text),
                  "/etc/cairn/job.yaml": self.path("job.yaml", JOB_CONFIG["job.yaml"].replace(
                      "/checkpoints", self.path("checkpoints"))),
                  "/data": processes.DATA}
        tls, _ = self.certificates(places["/etc/cairn/cluster.yaml"])
        started, logs = [], []
        self.addCleanup(lambda: [processes.end(one) for one in started])
        for job, (manifest, count) in TASKS.items():
            for index in range(count):
                here = {**places, "/var/lib/cairn": self.path(f"{job}{index}"),
                        "/etc/cairn-tls": tls[job]}
                os.mkdir(here["/var/lib/cairn"])  # the volume
                logs.append(open(self.path(f"{job}{index}.log"), "w+", encoding="utf-8"))
                self.addCleanup(logs[-1].close)
                started.append(subprocess.Popen(self.command(manifest, index, here), text=True,
                                                stdout=subprocess.PIPE, stderr=logs[-1]))
        reports = []
        for process, log in list(zip(started, logs))[TASKS["ps"][1]:]:
            out, _ = process.communicate(timeout=120)
            log.seek(0)
            self.assertEqual(process.returncode, 0, log.read())
            reports.append(json.loads(out.splitlines()[-1]))
        self.assertGreaterEqual(reports[0]["eval"]["auc"], 0.900)
        self.assertTrue(glob.glob(self.path("checkpoints/a9a.*/MANIFEST.json")))
        there = {**places, "/var/lib/cairn": self.path("ps0"), "/etc/cairn-tls": tls["ps"]}
        for command in self.commands_in_a_servers_pod(there):
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        self.assertTrue(os.path.isfile(self.path("ps0/model.npz")), "README exports no model")
        for process in started[:TASKS["ps"][1]]:
            process.terminate()
            grace = PS["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            self.assertEqual(process.wait(grace), 0)


if __name__ == "__main__":
    tap.main()
