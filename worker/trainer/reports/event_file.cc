#include "worker/trainer/reports/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/host_name.h"
#include "common/status.h"
#include "common/write_all.h"
#include "worker/input/dataset/record_file.h"

namespace cairn {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// How many starts of one task within a second find a free name; a supervisor may restart quickly.
constexpr int kNamesTried = 100;

// Protocol buffers' wire format (protobuf.dev/programming-guides/encoding).
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

class Message {
 public:
  Message& Integer(uint32_t field, uint64_t value) {
    Key(field, kVarint);
    Varint(value);
    return *this;
  }
  Message& Double(uint32_t field, double value) {
    Key(field, kFixed64);
    Fixed(std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& Float(uint32_t field, float value) {
    Key(field, kFixed32);
    Fixed(std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& Bytes(uint32_t field, absl::string_view value) {
    Key(field, kBytes);
    Varint(value.size());
    bytes_.append(value.data(), value.size());
    return *this;
  }
  Message& Doubles(uint32_t field, const std::vector<double>& values) {
    Message packed;
    for (const double value : values) packed.Fixed(std::bit_cast<uint64_t>(value));
    return Bytes(field, packed.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Key(uint32_t field, WireType type) { Varint(field << 3 | type); }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  template <typename T>
  void Fixed(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::string bytes_;
};

// Omits sum_squares, field 5: it is not known from bucket counts, and TensorBoard does not show it.
std::string EncodeHistogram(const EventHistogram& histogram) {
  double count = 0;
  for (const double one : histogram.counts) count += one;
  return Message()
      .Double(1, histogram.min)
      .Double(2, histogram.max)
      .Double(3, count)
      .Double(4, histogram.sum)
      .Doubles(6, histogram.limits)
      .Doubles(7, histogram.counts)
      .bytes();
}

absl::Status Failed(const std::string& path, int error) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("event file ", path,
                          " (free space, permit writing there, or name another directory as "
                          "output.tensorboard)"));
}

}  // namespace

std::string EncodeEvent(const Event& event) {
  Message message;
  message.Double(1, event.wall_seconds);
  if (event.step != 0) message.Integer(2, static_cast<uint64_t>(event.step));
  if (!event.file_version.empty()) message.Bytes(3, event.file_version);
  Message summary;
  for (const EventScalar& scalar : event.scalars) {
    summary.Bytes(1, Message().Bytes(1, scalar.tag).Float(2, scalar.value).bytes());
  }
  if (event.histogram.has_value()) {
    const std::string histogram = EncodeHistogram(*event.histogram);
    summary.Bytes(1, Message().Bytes(1, event.histogram->tag).Bytes(5, histogram).bytes());
  }
  if (!summary.bytes().empty()) message.Bytes(5, summary.bytes());
  constexpr uint64_t kStart = 1;  // SessionLog.SessionStatus
  if (event.session_starts) message.Bytes(7, Message().Integer(1, kStart).bytes());
  return message.bytes();
}

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& folder,
                                                             absl::Time now, int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Failed(folder, error.value());
  const std::string host = HostName();
  std::string path;
  int file = -1;
  for (int i = 0; i < kNamesTried && file < 0; ++i) {
    path = absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixSeconds(now) + i, ".", host);
    file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0 && errno != EEXIST) break;
  }
  if (file < 0) return Failed(path, errno);
  std::unique_ptr<EventFile> made(new EventFile(path, file));
  const double seconds = absl::ToDoubleSeconds(now - absl::UnixEpoch());
  RETURN_IF_ERROR(made->Add({.wall_seconds = seconds, .file_version = "brain.Event:2"}));
  RETURN_IF_ERROR(made->Add({.wall_seconds = seconds, .step = first_step, .session_starts = true}));
  RETURN_IF_ERROR(made->Flush());
  return made;
}

EventFile::~EventFile() { Close().IgnoreError(); }

absl::Status EventFile::Add(const Event& event) {
  AppendTFRecord(EncodeEvent(event), &pending_);
  return pending_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::Status EventFile::Flush() {
  const std::string bytes = std::exchange(pending_, {});
  if (!WriteAll(file_, bytes)) {
    const int error = errno;
    // Cuts off the torn record after a write that failed (disk full or broken). If the cut fails
    // too, readers skip the torn end.
    [[maybe_unused]] const int cut = ::ftruncate(file_, written_bytes_);
    return Failed(path_, error);
  }
  written_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status EventFile::Close() {
  if (file_ < 0) return absl::OkStatus();
  absl::Status status = Flush();
  if (::close(std::exchange(file_, -1)) != 0 && status.ok()) status = Failed(path_, errno);
  return status;
}

}  // namespace cairn
