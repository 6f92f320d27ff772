#include "worker/strategy/worker_scope.h"

namespace cairn {
namespace {

std::optional<int32_t>& OfThisThread() {
  thread_local std::optional<int32_t> worker;
  return worker;
}

}  // namespace

std::optional<int32_t> CurrentWorker() { return OfThisThread(); }

WorkerScope::WorkerScope(std::optional<int32_t> worker) : before_(OfThisThread()) {
  OfThisThread() = worker;
}
WorkerScope::~WorkerScope() { OfThisThread() = before_; }

}  // namespace cairn
