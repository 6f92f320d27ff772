#include "worker/ops/cuda_graphs.h"

#include <algorithm>

namespace cairn {

CudaGraph::~CudaGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

cudaError_t CudaGraph::Capture(cudaStream_t stream, absl::FunctionRef<cudaError_t()> issue) {
  // Thread-local, because other threads may allocate memory in the meantime.
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return error;
  error = issue();
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  if (error == cudaSuccess) error = ended;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&graph_, captured, 0);
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (error != cudaSuccess) graph_ = nullptr;
  return error;
}

CudaGraphs::Choice CudaGraphs::Choose(const std::string& key) {
  const auto found =
      std::ranges::find_if(kept_, [&](const auto& kept) { return kept->key == key; });
  if (found == kept_.end()) {
    ++misses_;
    if (kept_.size() == kKept) kept_.pop_back();
    kept_.insert(kept_.begin(), std::make_unique<Kept>())->get()->key = key;
    return {};
  }
  misses_ = 0;
  std::rotate(kept_.begin(), found, found + 1);
  Kept& kept = *kept_.front();
  if (kept.given_up) return {};
  return {.capture = kept.graph.empty(), .graph = &kept.graph};
}

void CudaGraphs::GiveUp(const CudaGraph* graph) {
  for (const auto& kept : kept_) {
    if (&kept->graph == graph) kept->given_up = true;
  }
}

}  // namespace cairn
