"""The compiler's own account of the GPU kernels: no warnings, no spilled registers beyond a list, so
few registers that a multiprocessor holds several blocks, 16-byte loads in the kernels that move packs,
and additions in memory that are one instruction."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
import processes  # noqa: E402
import tap  # noqa: E402

ARCH = sys.argv.pop()
NVCC = sys.argv.pop()
# Four blocks of 256 threads on a multiprocessor of 64 Ki registers.
MAX_REGISTERS = 64
# Kernels that may spill, and bytes: optimizers in float64, and sums by 64-bit indices.
SPILLS = {
    r"CombineRowsBody": 64,
    r"UpdateElementsBody.*EdE": 64,
    r"UpdateRowsBody.*EdE": 64,
    r"UpdateElementsBody.*Adadelta": 64,
}
# The bodies that move 16 bytes at a time: four floats or two doubles.
PACKED = r"(GatherRowsBodyILi4E|GatherTablesBodyILi4E|CopyColumnsBodyILi4E|AddToRowsBodyILi4E|" \
         r"Update(Elements|Rows)BodyI\w*Li4EfE|Update(Elements|Rows)BodyI\w*Li2EdE)"
WIDE_LOAD = re.compile(r"\bld\.global(?:\.\w+)*\.v(?:4\.[fbu]32|2\.[fbu]64)\b")


class DeviceCode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        command = [NVCC, "-cubin", os.path.join(processes.TOP, "worker/ops/cuda_queue.cu"), "-o",
                   os.path.join(cls.folder, "cuda_queue.cubin"), "-std=c++20",
                   "--expt-relaxed-constexpr", "-O3", "-DNDEBUG", "-I" + processes.TOP,
                   f"-arch=sm_{ARCH}", "-Werror=all-warnings", "-Xptxas", "-v", "--keep",
                   "--keep-dir", cls.folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        # By kernel: registers, bytes of stack, stored, loaded.
        cls.kernels = {}
        name = None
        for line in (done.stdout + done.stderr).splitlines():
            if found := re.search(r"Compiling entry function '(\w+)'", line):
                name = found[1]
            elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                    r"(\d+) bytes spill loads", line):
                cls.kernels[name] = [0, *map(int, found.groups())]
            elif found := re.search(r"Used (\d+) registers", line):
                cls.kernels[name][0] = int(found[1])
        ptx = [name for name in os.listdir(cls.folder) if name.endswith(".ptx")]
        with open(os.path.join(cls.folder, ptx[0]), encoding="utf-8") as file:
            text = file.read()
        cls.ptx = dict(re.findall(r"\.entry (\w+)\((.*?)\n\}", text, re.DOTALL))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_every_kernel_was_compiled(self):
        self.assertGreater(len(self.kernels), 300)
        self.assertEqual(set(self.kernels), set(self.ptx))

    def test_only_the_listed_kernels_spill_registers(self):
        for name, (_, *frames) in self.kernels.items():
            allowed = max((most for pattern, most in SPILLS.items() if re.search(pattern, name)),
                          default=0)
            self.assertLessEqual(max(frames), allowed, name)

    def test_a_multiprocessor_holds_four_blocks(self):
        for name, (registers, *_) in self.kernels.items():
            self.assertLessEqual(registers, MAX_REGISTERS, name)

    def test_packs_are_loaded_by_one_instruction(self):
        packed = [name for name in self.ptx if re.search(PACKED, name)]
        self.assertGreater(len(packed), 40)
        for name in packed:
            self.assertRegex(self.ptx[name], WIDE_LOAD, name)

    def test_sums_in_memory_are_additions_not_loops(self):
        adding = [name for name in self.ptx if re.search("SumRows|SumOverRows|BiasBackward", name)]
        self.assertGreater(len(adding), 4)
        for name in adding:
            self.assertRegex(self.ptx[name], r"\b(red|atom)\.global(\.\w+)*\.add\.f32", name)
            self.assertNotIn(".cas.", self.ptx[name], name)


if __name__ == "__main__":
    tap.main()
