#include "common/consistency.h"

#include "absl/strings/str_cat.h"

namespace cairn {

std::string ConsistencyText(const Consistency& consistency) {
  std::string text;
  switch (consistency.mode) {
    case ConsistencyMode::kAsync: text = "async"; break;
    case ConsistencyMode::kSsp:
      text = absl::StrCat("ssp, staleness_bound_steps ", consistency.staleness_bound_steps);
      break;
    case ConsistencyMode::kSync:
      text = absl::StrCat("sync, replicas_to_aggregate ", consistency.replicas_to_aggregate,
                          ", sync_mean ",
                          consistency.sync_mean == SyncMean::kRows ? "rows" : "contributors");
      break;
  }
  absl::StrAppend(&text, ", on_worker_loss ",
                  consistency.on_worker_loss == WorkerLoss::kFail ? "fail" : "continue");
  return text;
}

}  // namespace cairn
