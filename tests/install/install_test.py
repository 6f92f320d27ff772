"""The installed library serves programs outside the tree: `meson install` into an empty directory,
then examples/ are compiled against only the installed files, with pkg-config and with CMake, shared
and static, and train: with in-process servers and the installed cairn-ps, and with replicas. The
shared library exports only the names that the public headers declare."""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop())
EXAMPLES = os.path.join(processes.TOP, "examples")
CACHE = ["ccache"] if shutil.which("ccache") else []
# With -Wextra a designated initializer warns about every omitted member without a default
# initializer: the members of public structs have one.
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
COMPILE = [*CACHE, "g++", "-std=c++20", *WARNINGS]
# Symbols that the shared library may export besides functions and variables of the namespace.
KINDS = r"(?:(?:typeinfo|typeinfo name|vtable|VTT|guard variable) for |.*thunk to )?"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit status {done.returncode}\n"
                             f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def needed(binary):
    """Names of the shared libraries that a file needs."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", binary))


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cairn-install.")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir",
            os.path.join(cls.folder, "root"))
        files = glob.glob(os.path.join(cls.folder, "root", "**", "cairn.pc"), recursive=True)
        assert len(files) == 1, files
        cls.libraries = os.path.dirname(os.path.dirname(files[0]))
        cls.environment = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(files[0])}
        # pkg-config reports the installation of the programs: the tests' servers are these
        # programs.
        cls.prefix = cls.pkg_config("--variable=prefix", "cairn")[0]
        processes.PS = os.path.join(cls.prefix, "bin", "cairn-ps")

    @classmethod
    def pkg_config(cls, *arguments):
        return run("pkg-config", *arguments, env=cls.environment).split()

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.folder, *parts)

    @classmethod
    def compiled(cls, source, *options):
        """The object file of an example, compiled once."""
        made = cls.path(os.path.basename(source) + "".join(options) + ".o")
        if not os.path.exists(made):
            run(*COMPILE, *options, *cls.pkg_config("--cflags", "cairn"), "-c",
                os.path.join(EXAMPLES, source), "-o", made, cwd=cls.folder)
        return made

    def linked(self, source, package, *flags):
        made = self.path(f"{os.path.basename(source)}-{package}")
        run("g++", self.compiled(source), "-o", made, *self.pkg_config("--libs", package), *flags)
        return made

    def check_training(self, embed, mirrored):
        """With an in-process server, with the installed cairn-ps, and on two logical devices."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            self.assertIn("step 2000", run(embed, cwd=folder))
            with processes.Cluster(folder, 2) as cluster:
                self.assertIn("step 2000", run(embed, *cluster.addresses, cwd=folder))
        self.assertIn("2 replicas", run(mirrored, "2"))

    def test_programs_use_the_shared_library_by_pkg_config(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(self.compiled, ("embed.cc", "tutorials/mirrored.cc")))
        flags = [f"-Wl,-rpath,{self.libraries}"]
        embed = self.linked("embed.cc", "cairn", *flags)
        self.assertIn("libcairn_worker.so.0.2", needed(embed))
        # Only libraries that the headers use; programs do not link the library's other
        # dependencies.
        self.assertFalse([n for n in needed(embed) if re.search("thrift|rocksdb|gloo|blas|nccl", n)])
        self.check_training(embed, self.linked("tutorials/mirrored.cc", "cairn", *flags))
        without = self.path("embed-without-exceptions")
        run("g++", self.compiled("embed.cc", "-fno-exceptions"), "-o", without,
            *self.pkg_config("--libs", "cairn"), *flags)
        self.assertIn("step 2000", run(without, cwd=self.folder))

    def test_programs_use_the_archive_by_pkg_config(self):
        embed = self.linked("embed.cc", "cairn-static")
        self.assertFalse([n for n in needed(embed) if "cairn" in n])
        self.check_training(embed, self.linked("tutorials/mirrored.cc", "cairn-static"))

    def test_pkg_config_lists_what_a_static_link_needs(self):
        flags = self.pkg_config("--static", "--libs", "cairn")
        for library in ("-lgloo", "-lrocksdb", "-lthrift", "-lyaml-cpp"):
            self.assertIn(library, flags)
            self.assertNotIn(library, self.pkg_config("--libs", "cairn"))

    def test_programs_use_both_libraries_by_cmake(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake is not installed: examples/install_packages.sh --tests")
        build = self.path("cmake")
        run("cmake", "-S", os.path.dirname(__file__), "-B", build,
            f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}",
            f"-DCMAKE_CXX_COMPILER_LAUNCHER={';'.join(CACHE)}",
            f"-DSOURCE={os.path.join(EXAMPLES, 'tutorials', 'mirrored.cc')}")
        run("cmake", "--build", build)
        shared, archive = (os.path.join(build, f"consumer-{kind}") for kind in ("shared", "static"))
        self.assertIn("libcairn_worker.so.0.2", needed(shared))
        self.assertFalse([n for n in needed(archive) if "cairn" in n])
        for program in (shared, archive):
            self.assertIn("3 replicas", run(program, "3"))

    def test_cmake_refuses_another_version(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake is not installed: examples/install_packages.sh --tests")
        for wanted, found in (("0.2", True), ("0.2.0", True), ("0.1", False), ("0.3", False),
                              ("1.0", False)):
            script = self.path("version.cmake")
            major, minor = wanted.split(".")[:2]
            with open(script, "w", encoding="ascii") as f:
                f.write(f'set(PACKAGE_FIND_VERSION "{wanted}")\n'
                        f'set(PACKAGE_FIND_VERSION_MAJOR {major})\n'
                        f'set(PACKAGE_FIND_VERSION_MINOR {minor})\n'
                        "set(PACKAGE_FIND_VERSION_COUNT 2)\n"
                        f'include("{self.libraries}/cmake/cairn/cairn-config-version.cmake")\n'
                        'message("compatible: ${PACKAGE_VERSION_COMPATIBLE}")\n')
            done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
            self.assertIn(f"compatible: {str(found).upper()}", done.stderr, wanted)

    def test_the_shared_library_exports_only_its_headers(self):
        library = os.path.join(self.libraries, "libcairn_worker.so")
        shown = [line.split(" ", 2)[2].split("@@")[0]
                 for line in run("nm", "-DC", "--defined-only", library).splitlines()]
        self.assertGreater(len(shown), 300)
        foreign = [name for name in shown if name != "CAIRN_0.2" and
                   not re.match(KINDS + r"cairn::k?[A-Z]", name)]
        self.assertFalse(foreign)
        for name in ("cairn::MirroredStrategy::Create(", "cairn::CreateVariable(",
                     "cairn::PsClient::Connect(", "cairn::DistributeDataset(",
                     "cairn::InProcessServer::Open(", "typeinfo for cairn::Strategy"):
            self.assertTrue([s for s in shown if s.startswith(name)], name)
        # Names of the servers' and the wire's code, and of code that only the library's sources
        # include.
        for name in ("Engine", "wire", "RemoteLink", "ServerSession", "ContextStack", "TrainLoop"):
            self.assertFalse([s for s in shown if re.match(rf"{KINDS}cairn::{name}\b", s)], name)
        self.assertIn("[libcairn_worker.so.0.2]", run("readelf", "-d", library))

    def test_installed_headers_are_complete(self):
        """Each header finds its includes in the installed tree, in any include order. The tidy test
        shows in the source tree that each header includes what it uses."""
        top = os.path.join(self.prefix, "include")
        self.assertEqual(os.listdir(top), ["cairn"])
        headers = sorted(os.path.relpath(h, top)
                         for h in glob.glob(os.path.join(top, "cairn", "**", "*.h"), recursive=True))
        self.assertGreater(len(headers), 60)

        def compile_all(names, *flags):
            return subprocess.run(
                [*COMPILE[len(CACHE):], *self.pkg_config("--cflags", "cairn"), "-fsyntax-only",
                 *flags, "-x", "c++", "-"], input="".join(f'#include "{n}"\n' for n in names),
                capture_output=True, text=True, timeout=300).stderr[:2000]

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for errors in pool.map(compile_all, (headers, headers[::-1]), ("-g0", "-fno-exceptions")):
                self.assertEqual(errors, "")


    def test_the_library_is_silent_until_the_program_asks(self):
        """A program that makes the library warn (a scope that outlives its strategy) writes
        nothing, and with a sink exactly this warning."""
        source = self.path("silent.cc")
        with open(source, "w", encoding="ascii") as f:
            f.write("""#include "cairn/cairn.h"
int main(int argc, char**) {
  if (argc > 1) cairn::SetLogSink(cairn::StderrLogSink());
  auto strategy = cairn::MirroredStrategy::Create({cairn::Cpu(0)}).value();
  const cairn::Scope scope = strategy->EnterScope().value();
  strategy.reset();
}
""")
        program = self.path("silent")
        run(*COMPILE, *self.pkg_config("--cflags", "cairn"), source, "-o", program,
            *self.pkg_config("--libs", "cairn"), f"-Wl,-rpath,{self.libraries}", cwd=self.folder)
        for arguments, expected in (([], "^$"), (["asked"], r"^ERROR \S+:\d+: .*destroyed.*\n$")):
            done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            self.assertRegex(done.stderr, expected)


if __name__ == "__main__":
    tap.main()
