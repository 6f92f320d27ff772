// A reader written from the format's description reads SafetensorsWriter's files: names, dtypes,
// shapes and every value. (In tests/python/pages_test.py the package safetensors reads an export.)
#include "worker/trainer/files/safetensors_writer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

template <typename T>
absl::Span<const std::byte> Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Checks every rule of the format, and returns `tensors`: name to (dtype, shape, bytes).
constexpr char kReader[] = R"(
import json, struct, sys
data = open(sys.argv[1], "rb").read()
(length,) = struct.unpack("<Q", data[:8])
assert data[8:9] == b"{", data[8:40]
header = json.loads(data[8:8 + length])
body = data[8 + length:]
sizes = {"F64": 8, "F32": 4, "BF16": 2, "I64": 8, "U8": 1}
tensors, end = {}, 0
for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    assert set(entry) == {"dtype", "shape", "data_offsets"}, entry
    first, last = entry["data_offsets"]
    assert first == end, (name, "leaves a hole")
    count = 1
    for extent in entry["shape"]:
        count *= extent
    assert last - first == count * sizes[entry["dtype"]], name
    tensors[name] = entry["dtype"], entry["shape"], body[first:last]
    end = last
assert end == len(body), "bytes behind the last tensor"
)";

bool Python(const std::string& program, const std::string& folder, const std::string& path) {
  const std::string script = folder + "/check.py";
  std::ofstream(script) << program;
  const int status =
      std::system(absl::StrCat("/usr/bin/python3 '", script, "' '", path, "'").c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string WriteModel(const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  auto writer = SafetensorsWriter::Create(
      path, {"dense_0/kernel", "embedding/C1/keys", "scalar", "brain", "empty", "vocabulary"});
  EXPECT_TRUE(writer.ok()) << writer.status();
  const std::vector<float> matrix = {1.5f, -2, 3, 4, 5, 1e-30f};
  const std::vector<int64_t> keys = {-1, int64_t{1} << 62};
  const std::vector<double> scalar = {0.1};
  const std::vector<uint16_t> brain = {BFloat16FromFloat(1.0f), BFloat16FromFloat(-0.5f)};
  EXPECT_TRUE((*writer)->Add("dense_0/kernel", DType::kFloat32, {2, 3}, Bytes(matrix)).ok());
  EXPECT_TRUE((*writer)->Add("embedding/C1/keys", DType::kInt64, {2}, Bytes(keys)).ok());
  EXPECT_TRUE((*writer)->Add("scalar", DType::kFloat64, {}, Bytes(scalar)).ok());
  EXPECT_TRUE((*writer)->Add("brain", DType::kBFloat16, {2, 1}, Bytes(brain)).ok());
  EXPECT_TRUE((*writer)->Add("empty", DType::kFloat32, {0, 4}, {}).ok());
  EXPECT_TRUE((*writer)->AddStrings("vocabulary", {"the", "of"}).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

TEST(SafetensorsWriter, AReaderOfTheFormatReadsEveryDtypeAndShape) {
  TempDir folder;
  const std::string path = WriteModel(folder.path());
  EXPECT_TRUE(Python(absl::StrCat(kReader, R"(
assert sorted(tensors) == ["brain", "dense_0/kernel", "embedding/C1/keys", "empty", "scalar",
                           "vocabulary"], tensors.keys()
assert tensors["dense_0/kernel"] == ("F32", [2, 3], struct.pack("<6f", 1.5, -2, 3, 4, 5, 1e-30))
assert tensors["embedding/C1/keys"] == ("I64", [2], struct.pack("<2q", -1, 2**62))
assert tensors["scalar"] == ("F64", [], struct.pack("<d", 0.1))
assert tensors["brain"] == ("BF16", [2, 1], b"\x80\x3f\x00\xbf")
assert tensors["empty"] == ("F32", [0, 4], b"")
assert tensors["vocabulary"] == ("U8", [2, 3], b"theof\0")
)"),
                     folder.path(), path));
}

TEST(SafetensorsWriter, RefusesWrongSizesRepeatedNamesAndArraysWithoutRoom) {
  TempDir folder;
  auto writer = SafetensorsWriter::Create(folder.path() + "/m.safetensors", {"a"});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<float> values = {1, 2};
  EXPECT_EQ((*writer)->Add("a", DType::kFloat32, {3}, Bytes(values)).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE((*writer)->Add("a", DType::kFloat32, {2}, Bytes(values)).ok());
  EXPECT_EQ((*writer)->Add("a", DType::kFloat32, {2}, Bytes(values)).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE((*writer)->Add(std::string(2000, 'b'), DType::kFloat32, {2}, Bytes(values)).ok());
  EXPECT_EQ((*writer)->Finish().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SafetensorsWriter, LeavesNothingWithoutFinish) {
  TempDir folder;
  const std::string path = folder.path() + "/m.safetensors";
  { ASSERT_TRUE(SafetensorsWriter::Create(path, {"a"}).ok()); }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_NE(access((path + ".part").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace cairn
