// Steps that recur, as graphs of CUDA: one call in place of one for each op and copy.
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

// A graph that can be launched, destroyed with its owner. Thread safety: none.
class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Captures what `issue` asks of streams that follow `stream`, without doing it. The first error,
  // also that of `issue`, leaves the graph empty.
  cudaError_t Capture(cudaStream_t stream, absl::FunctionRef<cudaError_t()> issue);
  bool empty() const { return graph_ == nullptr; }
  cudaError_t Launch(cudaStream_t stream) const { return cudaGraphLaunch(graph_, stream); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

// A step's calls, put off until all of them are known. Thread safety: none.
class PutOffCalls {
 public:
  // `parts` are the values that determine what `call` does, bit by bit.
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

// The graphs of the last steps, by their keys. Thread safety: none.
class CudaGraphs {
 public:
  // What to do with a step's calls.
  struct Choice {
    bool capture = false;        // they came before: capture them
    CudaGraph* graph = nullptr;  // to launch, or to capture into; null: issue the calls
  };
  Choice Choose(const std::string& key);
  // `graph` could not be captured: steps of its key are issued call by call from here on.
  void GiveUp(const CudaGraph* graph);
  // False: hardly any step recurs, so that putting calls off only costs time.
  bool worthwhile() const { return misses_ < kMaxMisses; }
  void Stop() { misses_ = kMaxMisses; }

 private:
  // The last batch of an epoch and an evaluation have shapes of their own.
  static constexpr size_t kKept = 8;
  static constexpr int kMaxMisses = 16;

  struct Kept {
    std::string key;
    CudaGraph graph;
    bool given_up = false;
  };
  std::vector<std::unique_ptr<Kept>> kept_;  // the last used first
  int misses_ = 0;                           // steps since the last one that recurred
};

}  // namespace cairn
