#!/usr/bin/env python3
"""Downloads the data sets that are too large for the repository, in the form that the examples and
tests read.

usage: examples/data/get.py mnist|text8 ... [--to DIRECTORY] [--from URL]

mnist: 60,000 digits for training and the first 3,000 of the 10,000 for testing (about 10 MB).
text8: the first 549,570 words of text8, in lines of 55 words (a download of 31 MB, 3 MB kept).
Needs only Python 3. A data set appears when it is complete; one that is there is left as it is.
"""
import argparse
import gzip
import hashlib
import io
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile

SECONDS = 60  # without a byte
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
TEXT8_URL = "http://mattmahoney.net/dc/"
TEST_IMAGES = 3000
TEXT_WORDS, LINE_WORDS = 549_570, 55
# File there, file here, bytes of the header, bytes of an item, items; SHA-256 of what is kept,
# uncompressed.
MNIST = [
    ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte.gz", 16, 784, 60000,
     "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ("train-labels-idx1-ubyte.gz", "train-labels-idx1-ubyte.gz", 8, 1, 60000,
     "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ("t10k-images-idx3-ubyte.gz", "t3k-images-idx3-ubyte.gz", 16, 784, TEST_IMAGES,
     "a9d43786f02b7e11bdaa95b8927a9acdf8df838d28c1db8e03b5407c78518f69"),
    ("t10k-labels-idx1-ubyte.gz", "t3k-labels-idx1-ubyte.gz", 8, 1, TEST_IMAGES,
     "963d381bad1d38ee3d5f93ca03b54fd0d18309d319af44f5c347ad71e870d94c"),
]


class GetError(Exception):
    """What went wrong, for the user."""


def download(url):
    print(f"downloads {url}", file=sys.stderr)
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as reply:
            return reply.read()
    except (urllib.error.URLError, OSError) as error:
        raise GetError(f"{url}: {error}; check the network, or name another server of the same "
                       "files with --from") from error


def get_mnist(base, folder):
    for theirs, ours, header, item, items, digest in MNIST:
        url = (base or MNIST_URL) + theirs
        try:
            content = gzip.decompress(download(url))
        except (OSError, EOFError) as error:
            raise GetError(f"{url} is not a gzip file: {error}") from error
        # The header's second number is the count of items.
        kept = content[:4] + items.to_bytes(4, "big") + content[8:header + items * item]
        found = hashlib.sha256(kept).hexdigest()
        if found != digest:
            raise GetError(f"{url} is not the MNIST file: SHA-256 {found} of what would be kept, "
                           f"expected {digest}")
        with open(os.path.join(folder, ours), "wb") as file:
            file.write(gzip.compress(kept, mtime=0))


def get_text8(base, folder):
    url = (base or TEXT8_URL) + "text8.zip"
    try:
        with zipfile.ZipFile(io.BytesIO(download(url))) as archive:
            words = archive.read("text8").split()[:TEXT_WORDS]
    except (zipfile.BadZipFile, KeyError) as error:
        raise GetError(f"{url} is not text8.zip: {error}") from error
    if len(words) < TEXT_WORDS:
        raise GetError(f"{url} has {len(words)} words, expected at least {TEXT_WORDS}")
    with open(os.path.join(folder, "text.txt"), "wb") as file:
        for first in range(0, TEXT_WORDS, LINE_WORDS):
            file.write(b" ".join(words[first:first + LINE_WORDS]) + b"\n")


SETS = {"mnist": ("mnist", get_mnist), "text8": ("text8-head", get_text8)}


def get(name, to, base):
    directory, fill = SETS[name]
    place = os.path.join(to, directory)
    if os.path.exists(place):
        print(f"{place} is there; remove it to download it again", file=sys.stderr)
        return
    os.makedirs(to, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=f".{directory}.", dir=to)
    try:
        fill(base, folder)
        os.chmod(folder, 0o755)
        os.rename(folder, place)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(place)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", choices=sorted(SETS), metavar="mnist|text8")
    parser.add_argument("--to", default=os.path.dirname(os.path.abspath(__file__)),
                        help="where the data sets' directories are made (default: %(default)s)")
    parser.add_argument("--from", dest="base", metavar="URL",
                        help="a server that has the same files, ending in a slash")
    options = parser.parse_args()
    try:
        for name in options.sets:
            get(name, options.to, options.base)
    except (GetError, OSError) as error:
        sys.exit(f"get.py: {error}")


if __name__ == "__main__":
    main()
