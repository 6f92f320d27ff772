#include "worker/input/read_ahead.h"

#include "common/log.h"
#include "common/start_thread.h"

namespace cairn {

absl::Status StartThreads(absl::string_view what, size_t count, const std::function<void()>& body,
                          std::vector<std::thread>* threads) {
  while (threads->size() < count) {
    absl::StatusOr<std::thread> thread = StartThread(body);
    if (thread.ok()) {
      threads->push_back(*std::move(thread));
      continue;
    }
    if (threads->empty()) return Annotate(thread.status(), what);
    LOG(WARNING) << what << ": " << threads->size() << " threads instead of " << count << ": "
                 << thread.status().message();
    break;
  }
  return absl::OkStatus();
}

void LogSlowRead(absl::string_view what, absl::Duration waited) {
  LOG(WARNING) << "no " << what << " for " << absl::FormatDuration(waited)
               << ": the file system, or a function of the dataset, is slow or hangs";
}

}  // namespace cairn
