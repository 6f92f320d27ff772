#include "worker/trainer/files/npz_writer.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn {
namespace {

constexpr uint32_t kMax32 = std::numeric_limits<uint32_t>::max();
constexpr uint16_t kMax16 = std::numeric_limits<uint16_t>::max();
// The field "version needed": 2.0 for plain entries, 4.5 for ZIP64.
constexpr uint16_t kPlainVersion = 20;
constexpr uint16_t kZip64Version = 45;
// Bit 11: names are UTF-8.
constexpr uint16_t kFlags = 1u << 11;
// 1980-01-01, the earliest date a ZIP can hold. A fixed date makes equal arrays give equal files.
constexpr uint16_t kDosDate = (1u << 5) | 1u;

void Put16(std::string* out, uint16_t value) {
  out->push_back(static_cast<char>(value & 0xff));
  out->push_back(static_cast<char>(value >> 8));
}

void Put32(std::string* out, uint32_t value) {
  Put16(out, static_cast<uint16_t>(value & 0xffff));
  Put16(out, static_cast<uint16_t>(value >> 16));
}

void Put64(std::string* out, uint64_t value) {
  Put32(out, static_cast<uint32_t>(value & kMax32));
  Put32(out, static_cast<uint32_t>(value >> 32));
}

uint32_t Clip32(uint64_t value) { return static_cast<uint32_t>(std::min<uint64_t>(value, kMax32)); }

absl::string_view NumpyDescription(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "<f8";
    case DType::kFloat16: return "<f2";
    case DType::kInt32: return "<i4";
    case DType::kInt64: return "<i8";
    case DType::kFloat32:
    case DType::kBFloat16: break;
  }
  return "<f4";
}

// Magic, version, and a Python dictionary, padded so that the data begins at a multiple of 64.
std::string NpyHeader(absl::string_view description, absl::Span<const int64_t> shape) {
  std::string text =
      absl::StrCat("{'descr': '", description, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  constexpr size_t kFixedBytes = 10;
  const size_t unpadded = kFixedBytes + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text.push_back('\n');
  std::string header("\x93NUMPY\x01\x00", 8);
  Put16(&header, static_cast<uint16_t>(text.size()));
  return header + text;
}

uint32_t Crc(uint32_t crc, const void* data, size_t size) {
  if (size == 0) return crc;  // crc32 returns its initial value for a null pointer
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(data), size));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NpzWriter>> NpzWriter::Create(const std::string& path,
                                                             std::string metadata) {
  if (metadata.size() > kMaxMetadataBytes) {
    return InvalidArgument("metadata of ", metadata.size(), " bytes for ", path,
                           "; a ZIP archive holds ", kMaxMetadataBytes, ": export to .safetensors");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PartFile> file, PartFile::Create(path, "the export file"));
  return std::unique_ptr<NpzWriter>(new NpzWriter(std::move(file), std::move(metadata)));
}

absl::Status NpzWriter::Add(absl::string_view name, DType dtype, absl::Span<const int64_t> shape,
                            absl::Span<const std::byte> data) {
  RETURN_IF_ERROR(CheckArrayBytes(name, dtype, shape, data.size()));
  if (dtype != DType::kBFloat16) {
    return WriteEntry(name, NpyHeader(NumpyDescription(dtype), shape), data);
  }
  std::vector<float> widened(data.size() / DTypeBytes(dtype));
  ToFloat32(dtype, data.data(), widened.size(), widened.data());
  return WriteEntry(
      name, NpyHeader(NumpyDescription(DType::kFloat32), shape),
      {reinterpret_cast<const std::byte*>(widened.data()), widened.size() * sizeof(float)});
}

absl::Status NpzWriter::AddStrings(absl::string_view name, absl::Span<const std::string> strings) {
  const size_t width = StringWidth(strings);
  const std::string bytes = PaddedStrings(strings, width);
  return WriteEntry(name,
                    NpyHeader(absl::StrCat("|S", width), {static_cast<int64_t>(strings.size())}),
                    {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

absl::Status NpzWriter::WriteEntry(absl::string_view name, absl::string_view header,
                                   absl::Span<const std::byte> data) {
  for (const Entry& entry : entries_) {
    if (entry.name == absl::StrCat(name, ".npy")) {
      return InvalidArgument("array '", name, "' is in the file already");
    }
  }
  Entry entry;
  entry.name = absl::StrCat(name, ".npy");
  entry.bytes = header.size() + data.size();
  entry.offset = file_->bytes();
  entry.crc = Crc(Crc(0, header.data(), header.size()), data.data(), data.size());
  const bool large = entry.bytes >= kMax32;
  std::string local("PK\x03\x04", 4);
  Put16(&local, large ? kZip64Version : kPlainVersion);
  Put16(&local, kFlags);
  Put16(&local, 0);  // compression: stored
  Put16(&local, 0);  // time
  Put16(&local, kDosDate);
  Put32(&local, entry.crc);
  Put32(&local, Clip32(entry.bytes));
  Put32(&local, Clip32(entry.bytes));
  Put16(&local, static_cast<uint16_t>(entry.name.size()));
  Put16(&local, large ? 20 : 0);
  local += entry.name;
  if (large) {
    Put16(&local, 1);  // ZIP64 sizes
    Put16(&local, 16);
    Put64(&local, entry.bytes);
    Put64(&local, entry.bytes);
  }
  RETURN_IF_ERROR(file_->Append(local));
  RETURN_IF_ERROR(file_->Append(header));
  RETURN_IF_ERROR(file_->Append({reinterpret_cast<const char*>(data.data()), data.size()}));
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

// An entry's record in the central directory.
std::string NpzWriter::DirectoryRecord(const Entry& entry) {
  const bool large = entry.bytes >= kMax32 || entry.offset >= kMax32;
  std::string record("PK\x01\x02", 4);
  Put16(&record, large ? kZip64Version : kPlainVersion);
  Put16(&record, large ? kZip64Version : kPlainVersion);
  Put16(&record, kFlags);
  Put16(&record, 0);
  Put16(&record, 0);
  Put16(&record, kDosDate);
  Put32(&record, entry.crc);
  Put32(&record, large ? kMax32 : Clip32(entry.bytes));
  Put32(&record, large ? kMax32 : Clip32(entry.bytes));
  Put16(&record, static_cast<uint16_t>(entry.name.size()));
  Put16(&record, large ? 28 : 0);
  record.append(10, '\0');  // no comment, disk 0, no attributes
  Put32(&record, large ? kMax32 : Clip32(entry.offset));
  record += entry.name;
  if (!large) return record;
  Put16(&record, 1);
  Put16(&record, 24);
  Put64(&record, entry.bytes);
  Put64(&record, entry.bytes);
  Put64(&record, entry.offset);
  return record;
}

// The end of the archive: the position of the directory, in ZIP64's form too if the plain fields
// overflow.
std::string NpzWriter::EndRecord(uint64_t count, uint64_t directory_offset,
                                 uint64_t directory_bytes, absl::string_view comment) {
  std::string end;
  if (count >= kMax16 || directory_offset >= kMax32 || directory_bytes >= kMax32) {
    end.append("PK\x06\x06", 4);
    Put64(&end, 44);  // bytes of the record after this field
    Put16(&end, kZip64Version);
    Put16(&end, kZip64Version);
    Put32(&end, 0);
    Put32(&end, 0);
    Put64(&end, count);
    Put64(&end, count);
    Put64(&end, directory_bytes);
    Put64(&end, directory_offset);
    end.append("PK\x06\x07", 4);
    Put32(&end, 0);
    Put64(&end, directory_offset + directory_bytes);
    Put32(&end, 1);
  }
  end.append("PK\x05\x06", 4);
  Put32(&end, 0);
  Put16(&end, static_cast<uint16_t>(std::min<uint64_t>(count, kMax16)));
  Put16(&end, static_cast<uint16_t>(std::min<uint64_t>(count, kMax16)));
  Put32(&end, Clip32(directory_bytes));
  Put32(&end, Clip32(directory_offset));
  Put16(&end, static_cast<uint16_t>(comment.size()));
  end.append(comment.data(), comment.size());
  return end;
}

absl::Status NpzWriter::Finish() {
  const uint64_t directory_offset = file_->bytes();
  std::string directory;
  for (const Entry& entry : entries_) directory += DirectoryRecord(entry);
  RETURN_IF_ERROR(file_->Append(directory));
  RETURN_IF_ERROR(
      file_->Append(EndRecord(entries_.size(), directory_offset, directory.size(), metadata_)));
  return file_->Finish();
}

}  // namespace cairn
