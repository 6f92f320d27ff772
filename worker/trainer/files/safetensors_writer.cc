#include "worker/trainer/files/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/errors.h"
#include "common/status.h"
#include "worker/trainer/files/safetensors_dtype.h"

namespace cairn {
namespace {

// The size of an entry besides its name: keys, dtype, up to 32 extents and two offsets of 20
// digits.
constexpr size_t kEntryBytes = 64 + 34 * 21;

std::string Quoted(absl::string_view text) { return nlohmann::json(std::string(text)).dump(); }

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, absl::Span<const std::string> names, std::string metadata) {
  constexpr size_t kMetadataKeysBytes = 64;
  size_t header_bytes = 2 + kMetadataKeysBytes + Quoted(metadata).size();
  for (const std::string& name : names) header_bytes += Quoted(name).size() + kEntryBytes;
  header_bytes = (header_bytes + 7) / 8 * 8;  // the data begins at a multiple of 8
  if (header_bytes > kMaxHeaderBytes) {
    return InvalidArgument(names.size(), " arrays need a header of ", header_bytes,
                           " bytes; .safetensors allows ", kMaxHeaderBytes, ": export to .npz");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PartFile> file, PartFile::Create(path, "the export file"));
  RETURN_IF_ERROR(file->Append(std::string(kLengthBytes + header_bytes, ' ')));
  return std::unique_ptr<SafetensorsWriter>(
      new SafetensorsWriter(std::move(file), header_bytes, std::move(metadata)));
}

absl::Status SafetensorsWriter::Add(absl::string_view name, DType dtype,
                                    absl::Span<const int64_t> shape,
                                    absl::Span<const std::byte> data) {
  RETURN_IF_ERROR(CheckArrayBytes(name, dtype, shape, data.size()));
  return WriteEntry(name, SafetensorsName(dtype), shape,
                    {reinterpret_cast<const char*>(data.data()), data.size()});
}

absl::Status SafetensorsWriter::AddStrings(absl::string_view name,
                                           absl::Span<const std::string> strings) {
  const size_t width = StringWidth(strings);
  return WriteEntry(name, "U8", {static_cast<int64_t>(strings.size()), static_cast<int64_t>(width)},
                    PaddedStrings(strings, width));
}

absl::Status SafetensorsWriter::WriteEntry(absl::string_view name, absl::string_view dtype,
                                           absl::Span<const int64_t> shape,
                                           absl::string_view data) {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return InvalidArgument("array '", name, "' is in the file already");
  }
  Entry entry{.name = std::string(name),
              .dtype = std::string(dtype),
              .shape = {shape.begin(), shape.end()},
              .begin = file_->bytes() - kLengthBytes - header_bytes_};
  entry.end = entry.begin + data.size();
  RETURN_IF_ERROR(file_->Append(data));
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata_.empty()) header["__metadata__"] = {{"cairn", metadata_}};
  for (const Entry& entry : entries_) {
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  if (text.size() > header_bytes_) {
    return InvalidArgument("the header takes ", text.size(), " bytes, space was reserved for ",
                           header_bytes_, ": Create was not given the names of all arrays");
  }
  text.append(header_bytes_ - text.size(), ' ');
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.push_back(static_cast<char>(header_bytes_ >> (8 * i) & 0xff));
  }
  RETURN_IF_ERROR(file_->WriteAt(0, length + text));
  return file_->Finish();
}

}  // namespace cairn
