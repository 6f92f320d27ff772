// SafetensorsReader reads SafetensorsWriter's files; other files are refused with the reason.
#include "worker/trainer/files/safetensors_reader.h"

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "worker/trainer/files/safetensors_writer.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
absl::Span<const std::byte> WrittenBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

class SafetensorsReaderTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_.Join("x.safetensors"); }

  // A file with this header and `data` bytes of zeros.
  absl::Status OpenWith(const std::string& header, size_t data = 0) {
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size() & 0xff);
    file[1] = static_cast<char>(header.size() >> 8);
    std::ofstream(path(), std::ios::binary) << file << header << std::string(data, '\0');
    return SafetensorsReader::Open(path()).status();
  }

  const TempDir folder_;
};

TEST_F(SafetensorsReaderTest, ReadsWhatTheWriterWrote) {
  const std::vector<float> kernel = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> step = {-7};
  auto writer = SafetensorsWriter::Create(path(), {"kernel", "step", "empty", "names"}).value();
  ASSERT_OK(writer->Add("kernel", DType::kFloat32, {2, 3}, WrittenBytes(kernel)));
  ASSERT_OK(writer->Add("step", DType::kInt64, {}, WrittenBytes(step)));
  ASSERT_OK(writer->Add("empty", DType::kBFloat16, {0, 4}, {}));
  ASSERT_OK(writer->AddStrings("names", {"a", "bc"}));
  ASSERT_OK(writer->Finish());

  const auto reader = SafetensorsReader::Open(path());
  ASSERT_OK(reader);
  EXPECT_EQ((*reader)->arrays().size(), 4u);
  EXPECT_EQ((*reader)->arrays().at("names").type, "U8");
  EXPECT_OK((*reader)->Find("empty", DType::kBFloat16, {0, 4}));
  const auto array = (*reader)->Find("kernel", DType::kFloat32, {2, 3});
  ASSERT_OK(array);
  std::vector<float> read(6);
  ASSERT_OK((*reader)->Read(
      *array, {reinterpret_cast<std::byte*>(read.data()), read.size() * sizeof(float)}));
  EXPECT_EQ(read, kernel);
  EXPECT_THAT((*reader)->Find("kernal", DType::kFloat32, {2, 3}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("did you mean 'kernel'")));
  EXPECT_THAT((*reader)->Find("kernel", DType::kFloat32, {3, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("F32 [2, 3]"), HasSubstr("asked for as F32 [3, 2]"))));
  EXPECT_THAT((*reader)->Find("names", DType::kInt32, {2, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("U8")));
}

TEST_F(SafetensorsReaderTest, RefusesWhatIsNoSuchFile) {
  EXPECT_EQ(SafetensorsReader::Open(path()).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path()) << "short";
  EXPECT_THAT(SafetensorsReader::Open(path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("5 bytes")));
  std::ofstream(path()) << "a text that is long enough for a length";
  EXPECT_THAT(SafetensorsReader::Open(path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("its header takes")));
  const auto refused = [this](const std::string& header, const std::string& why) {
    EXPECT_THAT(OpenWith(header, 8), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused("[]", "no JSON object");
  refused("{", "no JSON object");
  refused(std::string(2000, '['), "no JSON object");
  refused(R"({"x":1})", "array 'x' has no dtype");
  refused("{\"x\x7f\xc2\x9b\":1}", R"(array 'x\x7f\xc2\x9b' has no dtype)");
  refused(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "impossible shape");
  refused(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
          "impossible shape");
  refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", "data_offsets");
  refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "bytes 4 to 0 of 8");
  refused(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "bytes 0 to 12 of 8");
  refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "F32 [1] takes 4");
  refused(R"({"x":{"dtype":"F32\u001b","shape":[1],"data_offsets":[0,4]}})", "impossible dtype");
  refused(absl::StrCat(R"({"x":{"dtype":"F)", std::string(20, '3'),
                       R"(","shape":[1],"data_offsets":[0,4]}})"),
          "impossible dtype");
  std::string dimensions = "0";
  for (int i = 0; i < 64; ++i) dimensions += ",0";
  refused(
      absl::StrCat(R"({"x":{"dtype":"F32","shape":[)", dimensions, R"(],"data_offsets":[0,0]}})"),
      "impossible shape");
  const absl::Status long_name =
      OpenWith(absl::StrCat(R"({"x)", std::string(9000, '9'), R"(":1})"), 8);
  EXPECT_THAT(long_name.message(), HasSubstr("array 'x9999"));
  EXPECT_LT(long_name.message().size(), 1000u);
  EXPECT_OK(OpenWith(R"({"__metadata__":{"by":"x"},"x":{"dtype":"F32","shape":[2],)"
                     R"("data_offsets":[0,8]}})",
                     8));
}

}  // namespace
}  // namespace cairn
