// Counts the calls of each method by outcome, and how long they took.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/slotted.h"
#include "thrift/security/roles.h"

namespace cairn {

struct RpcStatistics {
  absl::string_view method;
  absl::StatusCode outcome = absl::StatusCode::kOk;
  Histogram::Reading seconds;
};

// Thread safety: every method may be called from several threads at once.
class RpcMeter {
 public:
  RpcMeter();

  // Measures one call for as long as this object lives: from the time the request was read until
  // its reply is built, including waits for other calls.
  class Call {
   public:
    Call(RpcMeter& meter, Method method);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Sets the outcome. A call that ends without it counts as kUnknown.
    void Ended(absl::StatusCode outcome) { outcome_ = outcome; }

   private:
    RpcMeter& meter_;
    const Method method_;
    const absl::Duration begin_;
    absl::StatusCode outcome_ = absl::StatusCode::kUnknown;
  };

  int64_t running() const { return running_.Read(); }
  // OK for every method; other outcomes only if they have occurred.
  std::vector<RpcStatistics> Read() const;

 private:
  void Add(Method method, absl::StatusCode outcome, absl::Duration took);

  SlottedCount running_;
  std::array<std::unique_ptr<Histogram>, Method::kCount> ok_;
  mutable absl::Mutex mutex_;  // few calls fail
  std::map<std::pair<size_t, absl::StatusCode>, Histogram> failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
