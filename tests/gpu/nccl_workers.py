"""Workers that sum by NCCL on one GPU, each in a process of its own. NCCL takes them for several
hosts, because each has an NCCL_HOSTID of its own, and sums over the loopback interface.

  python3 nccl_workers.py EXAMPLES WORKER...

EXAMPLES is the repository's folder of examples, WORKER the command that calls cairn-worker. Workers
on the GPU reach the metric of workers on the CPU; all workers keep the same bits; and a worker that
is killed or stopped is named by the others within the timeout."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

EXAMPLES, *WORKER = sys.argv[1:]
sys.path.insert(0, os.path.join(EXAMPLES, "..", "tests", "support"))
import processes  # noqa: E402

TIMEOUT = 10
ENV = {**os.environ, "LD_LIBRARY_PATH": os.environ.get("CAIRN_LIBRARIES", ""),
       "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}


class Job:
    """A job of `count` workers in `folder`; `settings` are lines for --set."""

    def __init__(self, folder, count, *settings):
        self.folder, self.settings = folder, settings
        self.cluster = processes.workers_alone(folder, count)
        with open(self.cluster, encoding="ascii") as file:
            self.addresses = json.load(file)["cluster"]["worker"]

    def start(self, index, *flags, settings=()):
        command = [*WORKER, "--job", f"{EXAMPLES}/abalone.yaml", "--data_root", f"{EXAMPLES}/data",
                   "--cluster", self.cluster, "--task_type", "worker", "--task_index", str(index)]
        for setting in ("strategy.type=multi_worker_mirrored", "strategy.deterministic=true",
                        f"strategy.communication.timeout_seconds={TIMEOUT}",
                        f"storage.directory={self.folder}/storage", *self.settings, *settings):
            command += ["--set", setting]
        with open(self.log(index), "wb") as log:
            return subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=log,
                                    env={**ENV, "NCCL_HOSTID": f"worker{index}"}, text=True)

    def log(self, index):
        return os.path.join(self.folder, f"worker{index}.log")

    def text(self, index):
        with open(self.log(index), encoding="utf-8", errors="replace") as file:
            return file.read()

    def train(self):
        """The report of the first worker."""
        started = [self.start(i) for i in range(len(self.addresses))]
        outputs = [process.communicate(timeout=90)[0] for process in started]
        for index, process in enumerate(started):
            if process.returncode != 0:
                raise AssertionError(f"worker {index} exited {process.returncode}:\n"
                                     + self.text(index)[-3000:])
        return json.loads(outputs[0].splitlines()[-1])

    def state(self, index):
        """The variables that a worker keeps, as bytes."""
        export = os.path.join(self.folder, "state.safetensors")
        process = self.start(index, "--mode", "evaluate", "--export", export,
                             settings=("strategy.devices=[cpu:0]",
                                       "strategy.communication.implementation=ring"))
        process.communicate(timeout=60)
        if process.returncode != 0:
            raise AssertionError(self.text(index)[-3000:])
        with open(export, "rb") as file:
            return file.read()

    def lose(self, number, lost=1):
        """Sends the signal to worker `lost` in the middle of a run; the others name it."""
        steps = os.path.join(self.folder, f"steps{number}.jsonl")
        started = [self.start(i, "--metrics_file", steps, settings=("data.epochs=100000",))
                   for i in range(len(self.addresses))]
        try:
            processes.wait_for(lambda: os.path.exists(steps) and os.path.getsize(steps) > 2000, 30,
                               "some steps")
            os.kill(started[lost].pid, number)
            begin = time.monotonic()
            for index, process in enumerate(started):
                if index == lost:
                    continue
                process.communicate(timeout=TIMEOUT + 20)
                last = self.text(index).splitlines()[-1]
                print(f"{signal.Signals(number).name} to worker {lost}: worker {index} exited "
                      f"{process.returncode} after {time.monotonic() - begin:.1f} s: {last}")
                assert process.returncode == 1
                assert f"rank {lost} ({self.addresses[lost]})" in last
                assert time.monotonic() - begin < TIMEOUT + 4
        finally:
            for process in started:
                process.kill()
                process.communicate(timeout=60)


def main():
    gpu = ("strategy.devices=[gpu:0]", "strategy.communication.implementation=nccl")
    with tempfile.TemporaryDirectory() as folder:
        cpu_folder, gpu_folder, lost_folder = (os.path.join(folder, n) for n in "cgl")
        for path in (cpu_folder, gpu_folder, lost_folder):
            os.mkdir(path)
        size = ("model.hidden=[256,128]", "data.epochs=10")
        cpu = Job(cpu_folder, 3, "strategy.devices=[cpu:0]", *size).train()
        job = Job(gpu_folder, 3, *gpu, *size)
        report = job.train()
        for index in range(3):
            for line in ("sums gradients between the GPUs of all workers by NCCL", "stay on gpu:0"):
                assert line in job.text(index), job.text(index)
        print(f"rmse of three workers on the CPU: {cpu['eval']['rmse']}, on the GPU: "
              f"{report['eval']['rmse']}; {report['steps']} steps in {report['seconds']} s")
        assert report["gpu"]["steps"] == report["steps"] == cpu["steps"]
        assert abs(report["eval"]["rmse"] / cpu["eval"]["rmse"] - 1) < 0.01
        states = [job.state(index) for index in range(3)]
        assert len(states[0]) > 4 * 256 * 128
        assert states[1:] == states[:-1], "the workers keep different bits"
        for number in (signal.SIGKILL, signal.SIGSTOP):
            Job(lost_folder, 2, *gpu).lose(number)
    return 0


if __name__ == "__main__":
    sys.exit(main())
