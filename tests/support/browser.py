"""Headless Chromium, driven through the DevTools protocol."""
import base64
import json
import os
import re
import shutil
import subprocess
import urllib.request

import processes

CHROMIUM = shutil.which("chromium")
ANSWER_SECONDS = 30


class Browser:
    """One page; its context manager closes the browser."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "chromium")
        self.problems = []  # errors reported by the page or the browser
        self.number = 0

    def __enter__(self):
        os.mkdir(self.folder)
        with open(os.path.join(self.folder, "log"), "wb") as log:
            # In a container the sandbox cannot be created, and /dev/shm is small.
            self.process = subprocess.Popen(
                [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                 "--disable-gpu", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--disable-component-update",
                 "--remote-debugging-port=0", "--remote-allow-origins=*",
                 f"--user-data-dir={self.folder}", "about:blank"], stdout=log, stderr=log)
        try:
            self.connect()
        except BaseException:
            processes.end(self.process)
            raise
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            processes.end(self.process)

    def connect(self):
        import websocket  # python3-websocket
        path = os.path.join(self.folder, "DevToolsActivePort")
        processes.wait_for(lambda: os.path.exists(path) and os.path.getsize(path),
                           processes.START_SECONDS, "chromium to listen")
        with open(path, encoding="ascii") as f:
            port = f.readline().strip()

        def page():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json",
                                        timeout=ANSWER_SECONDS) as f:
                return [t for t in json.load(f) if t["type"] == "page"]

        target = processes.wait_for(page, processes.START_SECONDS, "chromium's first page")[0]
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"],
                                                  timeout=ANSWER_SECONDS)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                if "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def note(self, message):
        parameters = message.get("params", {})
        kind = message.get("method")
        if kind == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.problems.append(json.dumps(parameters["args"]))
        elif kind == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(json.dumps(parameters["entry"]))
        elif kind == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not re.match(r"http://127(\.\d+){3}:", url):
                self.problems.append(f"asked {url}")

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, script, seconds, what):
        return processes.wait_for(lambda: self.run(script), seconds, what)

    def look(self, width, height, dark, phone=False):
        """Sets the window's size and theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        """Saves the whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        data = base64.b64decode(shot["data"])
        with open(path, "wb") as f:
            f.write(data)
        return len(data)
