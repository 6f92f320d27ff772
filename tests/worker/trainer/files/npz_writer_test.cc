// numpy.load reads NpzWriter's files: names, dtypes, shapes and every value.
#include "worker/trainer/files/npz_writer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace cairn {
namespace {

template <typename T>
absl::Span<const std::byte> NpzBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// Runs `program` under Debian's Python with the file's path as its argument; true on exit status 0.
bool Python(const std::string& program, const std::string& path) {
  const int status =
      std::system(absl::StrCat("/usr/bin/python3 -c '", program, "' '", path, "'").c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(NpzWriter, NumpyReadsEveryDtypeAndShape) {
  if (!Python("import numpy", "")) GTEST_SKIP() << "python3-numpy is not installed";
  TempDir folder;
  const std::string path = folder.path() + "/model.npz";
  auto writer = NpzWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<float> matrix = {1.5f, -2, 3, 4, 5, 1e-30f};
  const std::vector<int64_t> keys = {-1, int64_t{1} << 62};
  const std::vector<double> scalar = {0.1};
  const std::vector<uint16_t> brain = {BFloat16FromFloat(1.0f), BFloat16FromFloat(-0.5f)};
  ASSERT_TRUE((*writer)->Add("dense_0/kernel", DType::kFloat32, {2, 3}, NpzBytes(matrix)).ok());
  ASSERT_TRUE((*writer)->Add("embedding/C1/keys", DType::kInt64, {2}, NpzBytes(keys)).ok());
  ASSERT_TRUE((*writer)->Add("scalar", DType::kFloat64, {}, NpzBytes(scalar)).ok());
  ASSERT_TRUE((*writer)->Add("brain", DType::kBFloat16, {2, 1}, NpzBytes(brain)).ok());
  ASSERT_TRUE((*writer)->Add("empty", DType::kFloat32, {0, 4}, {}).ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_TRUE(
      Python("import numpy, sys; f = numpy.load(sys.argv[1]); "
             "assert sorted(f.files) == [\"brain\", \"dense_0/kernel\", \"embedding/C1/keys\", "
             "\"empty\", \"scalar\"], f.files; "
             "k = f[\"dense_0/kernel\"]; assert k.dtype == numpy.float32; "
             "assert (k == numpy.array([[1.5, -2, 3], [4, 5, 1e-30]], numpy.float32)).all(); "
             "assert f[\"embedding/C1/keys\"].tolist() == [-1, 2**62]; "
             "assert f[\"scalar\"].shape == () and f[\"scalar\"] == 0.1; "
             "assert f[\"brain\"].tolist() == [[1.0], [-0.5]]; "
             "assert f[\"empty\"].shape == (0, 4)",
             path));
}

TEST(NpzWriter, RefusesWrongSizesAndRepeatedNames) {
  TempDir folder;
  auto writer = NpzWriter::Create(folder.path() + "/model.npz");
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<float> values = {1, 2};
  EXPECT_EQ((*writer)->Add("a", DType::kFloat32, {3}, NpzBytes(values)).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE((*writer)->Add("a", DType::kFloat32, {2}, NpzBytes(values)).ok());
  EXPECT_EQ((*writer)->Add("a", DType::kFloat32, {2}, NpzBytes(values)).code(),
            absl::StatusCode::kInvalidArgument);
}

// An unfinished export leaves neither a torn file nor its part file.
TEST(NpzWriter, LeavesNothingWithoutFinish) {
  TempDir folder;
  const std::string path = folder.path() + "/model.npz";
  { ASSERT_TRUE(NpzWriter::Create(path).ok()); }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_NE(access((path + ".part").c_str(), F_OK), 0);
}

TEST(NpzWriter, NamesTheFileItCannotMake) {
  const auto writer = NpzWriter::Create("/no-such-folder/model.npz");
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(writer.status().message().find("/no-such-folder/model.npz"), absl::string_view::npos);
}

}  // namespace
}  // namespace cairn
