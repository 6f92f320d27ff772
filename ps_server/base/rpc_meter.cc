#include "ps_server/base/rpc_meter.h"

#include <new>

#include "common/deadline.h"

namespace cairn {

RpcMeter::RpcMeter() {
  for (auto& histogram : ok_) histogram = std::make_unique<Histogram>(kCallSecondsBounds);
}

RpcMeter::Call::Call(RpcMeter& meter, Method method)
    : meter_(meter), method_(method), begin_(MonotonicNow()) {
  meter_.running_.Add(1);
}

RpcMeter::Call::~Call() {
  meter_.running_.Add(-1);
  meter_.Add(method_, outcome_, MonotonicNow() - begin_);
}

void RpcMeter::Add(Method method, absl::StatusCode outcome, absl::Duration took) {
  const double seconds = absl::ToDoubleSeconds(took);
  if (outcome == absl::StatusCode::kOk) return ok_[method.index()]->Observe(seconds);
  absl::MutexLock lock(&mutex_);
  try {
    failed_.try_emplace({method.index(), outcome}, kCallSecondsBounds)
        .first->second.Observe(seconds);
  } catch (const std::bad_alloc&) {
    // The first call with this outcome, and memory has run out: it is not counted.
  }
}

std::vector<RpcStatistics> RpcMeter::Read() const {
  std::vector<RpcStatistics> statistics;
  for (size_t i = 0; i < Method::kCount; ++i) {
    statistics.push_back({Method::At(i)->name, absl::StatusCode::kOk, ok_[i]->Read()});
  }
  absl::MutexLock lock(&mutex_);
  for (const auto& [call, histogram] : failed_) {
    statistics.push_back({Method::At(call.first)->name, call.second, histogram.Read()});
  }
  return statistics;
}

}  // namespace cairn
