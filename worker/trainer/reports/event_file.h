// TensorBoard's event files: TFRecords (record_file.h) of Event messages, which TensorFlow's
// event.proto, summary.proto and histogram.proto define (tensorflow/core/{util,framework,protobuf},
// tsl/protobuf). Encodes the dozen fields that a worker uses without libprotobuf, which would add a
// library, a compiler at build time and copies of four .proto files, for messages whose field
// numbers can never change.
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

// counts[i] is the number of values above limits[i - 1] (for the first: at or above `min`) and at
// or below limits[i].
struct EventHistogram {
  absl::string_view tag;
  double min = 0;
  double max = 0;
  double sum = 0;
  std::vector<double> limits;
  std::vector<double> counts;  // as many as limits
};

struct Event {
  double wall_seconds = 0;  // since 1970
  int64_t step = 0;
  absl::string_view file_version;  // only in a file's first event
  // Readers discard events of this step and later ones from earlier files of the directory.
  bool session_starts = false;
  std::vector<EventScalar> scalars;
  std::optional<EventHistogram> histogram;
};

// The message's bytes in the order of field numbers, as TensorFlow serializes it.
std::string EncodeEvent(const Event& event);

// Thread safety: none.
class EventFile {
 public:
  // Creates `folder` if it is missing, and in it a new file events.out.tfevents.SECONDS.HOST.
  // TensorBoard reads a directory's files in the order of their names, so if a name is taken, the
  // next second's is used. The file begins with the version and the start of a session at
  // `first_step`. Errors name the file and output.tensorboard.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& folder,
                                                           absl::Time now, int64_t first_step);
  // Tries to write the buffered events.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Buffers the event; at 64 KiB, as Flush.
  absl::Status Add(const Event& event);
  // Writes the buffered events. After an error the file ends with the last complete record, if the
  // disk allows, and the unwritten events are dropped.
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
