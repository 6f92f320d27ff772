"""HTTP access to cairn-ps and cairn-worker for tests."""
import http.client
import json
import os
import re

import addresses
import processes


class Http:
    """The HTTP address of a program with --http_port_file."""

    def __init__(self, port_file):
        self.port_file = port_file
        self.address = None

    def wait(self, process=None):
        def address():
            if process is not None and process.poll() is not None:
                raise AssertionError(f"the program ended with status {process.returncode}")
            if not os.path.exists(self.port_file):
                return None
            with open(self.port_file, encoding="ascii") as f:
                return f.read().strip()

        self.address = processes.wait_for(address, processes.START_SECONDS, self.port_file)
        return self

    def ask(self, path, method="GET", headers=None, body=None):
        """Returns status, headers and text of one answer."""
        connection = http.client.HTTPConnection(self.address, timeout=processes.START_SECONDS)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read().decode()
        finally:
            connection.close()

    def get(self, path):
        status, _, text = self.ask(path)
        if status != 200:
            raise AssertionError(f"{path}: {status} {text}")
        return text

    def metrics(self):
        """Samples by 'name{labels}', as written in the text."""
        found = {}
        for line in self.get("/metrics").splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def status(self, after=0):
        return json.loads(self.get(f"/status.json?after={after}"))


def names(samples):
    """Names of the samples; for histograms with _bucket, _sum and _count."""
    return {re.sub(r"\{.*", "", sample) for sample in samples}


def flags(port_file):
    return ["--http_address", addresses.own_host(), "--http_port", str(addresses.own_port()),
            "--http_port_file", port_file]
