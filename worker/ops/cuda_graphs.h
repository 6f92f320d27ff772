// Recurring steps as CUDA graphs: one launch replaces one call per op and copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

namespace cairn {

// An executable graph. Thread safety: none.
class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Captures the work that `issue` queues on `stream` and on streams that wait for it; the work
  // does not run. The graph stays empty after an error, which may be that of `issue`.
  cudaError_t Capture(cudaStream_t stream, absl::FunctionRef<cudaError_t()> issue);
  bool empty() const { return graph_ == nullptr; }
  cudaError_t Launch(cudaStream_t stream) const { return cudaGraphLaunch(graph_, stream); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// Collects the calls of a step until all are known. Thread safety: none.
class DeferredCalls {
 public:
  // `parts` are the values that determine the effect of `call`; the key consists of their bytes.
  template <typename... Parts>
  void Add(std::function<void()> call, const Parts&... parts) {
    calls_.push_back(std::move(call));
    (Append(parts), ...);
  }
  const std::string& key() const { return key_; }
  void Issue() const {
    for (const std::function<void()>& call : calls_) call();
  }
  void Clear() {
    calls_.clear();
    key_.clear();
  }

 private:
  template <typename Part>
  void Append(Part part) {
    __builtin_clear_padding(&part);
    key_.append(reinterpret_cast<const char*>(&part), sizeof(part));
  }

  std::vector<std::function<void()>> calls_;
  std::string key_;
};

// The graphs of recent steps, by key. Thread safety: none.
class CudaGraphs {
 public:
  // How to run the calls of a step.
  struct Choice {
    bool capture = false;        // the key occurred before: capture the calls
    CudaGraph* graph = nullptr;  // to launch, or to capture into; null: issue the calls
  };
  Choice Choose(const std::string& key);
  // The capture of `graph` failed: later steps with its key run call by call.
  void GiveUp(const CudaGraph* graph);
  // False: the last steps did not recur, so deferring calls only costs time.
  bool worthwhile() const { return misses_ < kMaxMisses; }
  void Stop() { misses_ = kMaxMisses; }

 private:
  // More than one, because the last batch of an epoch and an evaluation have different shapes.
  static constexpr size_t kKept = 8;
  static constexpr int kMaxMisses = 16;

  struct Kept {
    std::string key;
    CudaGraph graph;
    bool given_up = false;
  };
  std::vector<std::unique_ptr<Kept>> kept_;  // the most recently used first
  int misses_ = 0;                           // steps since the last recurring one
};

}  // namespace cairn
