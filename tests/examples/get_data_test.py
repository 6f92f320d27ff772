"""examples/data/get.py keeps the part of a download that tests read, refuses other content by name,
and leaves nothing behind when it fails."""
import contextlib
import functools
import gzip
import hashlib
import http.server
import importlib.util
import os
import sys
import tempfile
import threading
import unittest
import zipfile

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "support"))
import addresses  # noqa: E402
import tap  # noqa: E402

SPEC = importlib.util.spec_from_file_location("get", os.path.join(TOP, "examples/data/get.py"))
get = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(get)


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class GetData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cairn-get-data.")
        self.addCleanup(folder.cleanup)
        self.to = os.path.join(folder.name, "to")
        self.there = os.path.join(folder.name, "there")
        os.mkdir(self.there)
        handler = functools.partial(SilentHandler, directory=self.there)
        place = (addresses.own_host(), addresses.own_port())
        server = http.server.ThreadingHTTPServer(place, handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.base = "http://%s:%d/" % place
        self.addCleanup(setattr, get, "MNIST", get.MNIST)

    def get(self, name):
        with contextlib.redirect_stdout(sys.stderr):  # stdout is the tests' report
            get.get(name, self.to, self.base)

    def offer_text(self, words):
        with zipfile.ZipFile(os.path.join(self.there, "text8.zip"), "w") as archive:
            archive.writestr("text8", " " + "word " * words)

    def refuses(self, name, pattern):
        with self.assertRaisesRegex(get.GetError, pattern):
            self.get(name)
        self.assertEqual(os.listdir(self.to), [])

    def test_text8_is_cut_into_lines(self):
        self.offer_text(get.TEXT_WORDS + 1000)
        self.get("text8")
        with open(os.path.join(self.to, "text8-head", "text.txt"), encoding="ascii") as file:
            lines = [line.split() for line in file]
        self.assertEqual(sum(map(len, lines)), get.TEXT_WORDS)
        self.assertEqual({len(line) for line in lines[:-1]}, {get.LINE_WORDS})
        os.remove(os.path.join(self.there, "text8.zip"))
        self.get("text8")  # exists already

    def test_mnist_keeps_the_first_items(self):
        items = bytes(range(50))
        kept = b"\0\0\x08\x01" + (20).to_bytes(4, "big") + items[:20]
        get.MNIST = [("t10k.gz", "t3k.gz", 8, 1, 20, hashlib.sha256(kept).hexdigest())]
        with open(os.path.join(self.there, "t10k.gz"), "wb") as file:
            file.write(gzip.compress(b"\0\0\x08\x01" + (50).to_bytes(4, "big") + items))
        self.get("mnist")
        with gzip.open(os.path.join(self.to, "mnist", "t3k.gz")) as file:
            self.assertEqual(file.read(), kept)

    def test_other_content_is_refused(self):
        self.refuses("text8", "text8.zip: HTTP Error 404")
        self.offer_text(10)
        self.refuses("text8", "has 10 words, expected at least 549570")
        with open(os.path.join(self.there, "text8.zip"), "wb") as file:
            file.write(b"PK no zip")
        self.refuses("text8", "is not text8.zip")
        first = os.path.join(self.there, get.MNIST[0][0])
        with open(first, "wb") as file:
            file.write(gzip.compress(b"a page that says not found"))
        self.refuses("mnist", "is not the MNIST file: SHA-256")
        with open(first, "wb") as file:
            file.write(b"a page")
        self.refuses("mnist", "is not a gzip file")


if __name__ == "__main__":
    tap.main()
