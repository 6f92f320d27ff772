// TensorBoard's event files: TFRecords (record_file.h) of Event messages, which TensorFlow's
// event.proto, summary.proto and histogram.proto define (tensorflow/core/{util,framework,protobuf},
// tsl/protobuf). The dozen fields that a worker has something for are encoded here: libprotobuf
// would bring every worker a library, a compiler at build time and copies of four .proto files,
// for messages whose field numbers can never change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cairn {

struct EventScalar {
  absl::string_view tag;
  float value = 0;
};

// counts[i] values lie above limits[i - 1] (the first: at or above `min`), at or below limits[i].
struct EventHistogram {
  absl::string_view tag;
  double min = 0;
  double max = 0;
  double sum = 0;
  std::vector<double> limits;
  std::vector<double> counts;  // as many
};

struct Event {
  double wall_seconds = 0;  // since 1970
  int64_t step = 0;
  absl::string_view file_version;  // of a file's first event alone
  // What earlier files of the folder have of this step and later ones does not count any more.
  bool session_starts = false;
  std::vector<EventScalar> scalars;
  std::optional<EventHistogram> histogram;
};

// The message's bytes, fields by their numbers, as TensorFlow's own serialization has them.
std::string EncodeEvent(const Event& event);

// Thread safety: none.
class EventFile {
 public:
  // Makes `folder` where there is none, and in it events.out.tfevents.SECONDS.HOST, a new file:
  // TensorBoard reads a folder's files by their names' order, so a name that is taken becomes that
  // of the next second. It begins with the version and the start of a session at `first_step`.
  // Errors name the file and output.tensorboard.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder,
                                                           absl::Time now, int64_t first_step);
  // Tries to write what was added.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Keeps the event until 64 KiB have come together, then as Flush.
  absl::Status Add(const Event& event);
  // Writes what was added. After an error the file ends with the last record that is whole, as far
  // as the disk lets it, and what was not written is dropped.
  absl::Status Flush();
  absl::Status Close();
  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, int file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  int file_;
  std::string pending_;
  int64_t written_bytes_ = 0;
};

}  // namespace cairn
