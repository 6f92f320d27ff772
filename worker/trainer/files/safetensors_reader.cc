#include "worker/trainer/files/safetensors_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/nearest.h"
#include "common/printable_text.h"
#include "common/status.h"
#include "worker/trainer/files/safetensors_dtype.h"
#include "worker/trainer/files/safetensors_writer.h"

namespace cairn {
namespace {

// Of arrays that safetensors files have; the limits bound messages.
constexpr size_t kMostTypeBytes = 16;
constexpr size_t kMostDimensions = 64;

// The non-negative integers of a JSON array; nullopt if `json` is anything else.
std::optional<std::vector<int64_t>> Numbers(const nlohmann::json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const nlohmann::json& number : json) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return std::nullopt;
    }
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

// Reads one entry of the header, whose data must lie within `data_bytes`. Returns the problem, if
// any.
std::string ReadEntry(const nlohmann::json& json, uint64_t data_bytes,
                      SafetensorsReader::Array& array) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
      !json.contains("shape") || !json.contains("data_offsets")) {
    return "has no dtype, shape or data_offsets";
  }
  array.type = json["dtype"].get<std::string>();
  const auto shape = Numbers(json["shape"]);
  const auto offsets = Numbers(json["data_offsets"]);
  if (array.type.size() > kMostTypeBytes ||
      !std::ranges::all_of(array.type, [](char c) { return absl::ascii_isalnum(c) || c == '_'; })) {
    return "has an impossible dtype";
  }
  if (!shape.has_value() || shape->size() > kMostDimensions || !ElementCount(*shape).ok()) {
    return "has an impossible shape";
  }
  if (!offsets.has_value() || offsets->size() != 2) return "has no two data_offsets";
  array.shape = *shape;
  const auto begin = static_cast<uint64_t>((*offsets)[0]),
             end = static_cast<uint64_t>((*offsets)[1]);
  if (begin > end || end > data_bytes) {
    return absl::StrCat("lies at bytes ", begin, " to ", end, " of ", data_bytes);
  }
  array.begin = begin;
  array.bytes = end - begin;
  for (const DType dtype : kSafetensorsTypes) {
    if (SafetensorsName(dtype) != array.type) continue;
    const uint64_t bytes = static_cast<uint64_t>(*ElementCount(array.shape)) * DTypeBytes(dtype);
    if (bytes != array.bytes) {
      return absl::StrCat("has ", array.bytes, " bytes, ", array.type, " ", ShapeText(array.shape),
                          " takes ", bytes);
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("open ", path));
  std::unique_ptr<SafetensorsReader> reader(new SafetensorsReader(path, file));
  RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

absl::Status SafetensorsReader::Malformed(absl::string_view what) const {
  return InvalidArgument(path_, " is no complete .safetensors file: ", PrintableText(what),
                         "; write it again, or take another");
}

absl::Status SafetensorsReader::ReadHeader() {
  struct stat about = {};
  if (fstat(file_.get(), &about) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("stat ", path_));
  const auto size = static_cast<uint64_t>(about.st_size);
  if (size < SafetensorsWriter::kLengthBytes)
    return Malformed(absl::StrCat("it has ", size, " bytes"));
  unsigned char length[SafetensorsWriter::kLengthBytes];
  RETURN_IF_ERROR(ReadAt(0, length, sizeof(length)));
  uint64_t header_bytes = 0;
  for (size_t i = SafetensorsWriter::kLengthBytes; i-- > 0;)
    header_bytes = header_bytes << 8 | length[i];
  if (header_bytes > SafetensorsWriter::kMaxHeaderBytes ||
      header_bytes > size - SafetensorsWriter::kLengthBytes) {
    return Malformed(absl::StrCat("its header takes ", header_bytes, " bytes of ", size));
  }
  std::string text(header_bytes, ' ');
  RETURN_IF_ERROR(ReadAt(SafetensorsWriter::kLengthBytes, text.data(), text.size()));
  const nlohmann::json header = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Malformed("its header is no JSON object");
  const uint64_t data_at = SafetensorsWriter::kLengthBytes + header_bytes;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Array array;
    const std::string wrong = ReadEntry(entry, size - data_at, array);
    if (!wrong.empty()) return Malformed(absl::StrCat("array ", QuotedName(name), " ", wrong));
    array.begin += data_at;
    arrays_.emplace(name, std::move(array));
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsReader::Array> SafetensorsReader::Find(absl::string_view name,
                                                                 DType dtype,
                                                                 const Shape& shape) const {
  const auto found = arrays_.find(std::string(name));
  if (found == arrays_.end()) {
    std::vector<absl::string_view> names;
    for (const auto& entry : arrays_) names.emplace_back(entry.first);
    return NotFound(path_, " has no array ", QuotedName(name), " among its ", names.size(),
                    DidYouMean(name, names));
  }
  const Array& array = found->second;
  if (array.type == SafetensorsName(dtype) && array.shape == shape) return array;
  return InvalidArgument(path_, ": array ", QuotedName(name), " is ", array.type, " ",
                         ShapeText(array.shape), ", asked for as ", SafetensorsName(dtype), " ",
                         ShapeText(shape));
}

absl::Status SafetensorsReader::Read(const Array& array, absl::Span<std::byte> out) const {
  return ReadAt(array.begin, out.data(), out.size());
}

absl::Status SafetensorsReader::ReadAt(uint64_t offset, void* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = pread(file_.get(), static_cast<char*>(to) + done, bytes - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("read ", path_));
    if (got == 0) return Malformed(absl::StrCat("it ends at byte ", offset + done));
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

}  // namespace cairn
