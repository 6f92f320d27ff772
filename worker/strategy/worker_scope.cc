#include "worker/strategy/worker_scope.h"

#include <utility>

namespace cairn {
namespace {

struct ThreadState {
  std::optional<int32_t> worker;
  CancellationToken token;
};

ThreadState& OfThisThread() {
  thread_local ThreadState state;
  return state;
}

}  // namespace

std::optional<int32_t> CurrentWorker() { return OfThisThread().worker; }

CancellationToken CurrentCancellation() { return OfThisThread().token; }

WorkerScope::WorkerScope(std::optional<int32_t> worker, CancellationToken token)
    : worker_before_(OfThisThread().worker), token_before_(OfThisThread().token) {
  OfThisThread() = {worker, std::move(token)};
}

WorkerScope::~WorkerScope() { OfThisThread() = {worker_before_, token_before_}; }

}  // namespace cairn
