// Captured work of the fake streams: a graph that is launched as its streams were captured.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/support/fake_cuda/fake_streams.h"
#include "tests/support/fake_cuda/include/cuda_runtime_api.h"

namespace cairn::test::fake {

// What the streams that follow an origin were asked for. Thread safety: none; one host thread
// captures.
class Capture {
 public:
  explicit Capture(cudaStream_t origin) : origin_(origin) {}

  cudaStream_t origin() const { return origin_; }
  void Add(cudaStream_t stream, std::function<void()> work);
  // Returns the event's number in this capture.
  size_t Record(cudaStream_t stream);
  // `stream` takes part from here on.
  void Wait(cudaStream_t stream, size_t event);
  // Whether the origin waits for the last work of every stream that takes part.
  bool IsJoined() const;
  // The streams capture no longer.
  void End();

  // Queues everything on `origin` and, for the other streams, on those of `others`, which are made
  // when they are missing.
  void Launch(cudaStream_t origin, std::map<cudaStream_t, cudaStream_t>* others) const;

 private:
  enum class Kind { kWork, kRecord, kWait };
  struct Item {
    Kind kind;
    cudaStream_t stream;
    std::function<void()> work;
    size_t event = 0;
  };
  // For each stream the number of its items that come before.
  using Seen = std::map<cudaStream_t, size_t>;

  cudaStream_t const origin_;
  std::vector<Item> items_;
  std::map<cudaStream_t, size_t> counts_;
  std::map<cudaStream_t, Seen> seen_;  // by stream
  std::vector<Seen> recorded_;         // by event
};

}  // namespace cairn::test::fake

struct CUgraph_st {
  std::shared_ptr<cairn::test::fake::Capture> capture;
};
struct CUgraphExec_st {
  std::shared_ptr<cairn::test::fake::Capture> capture;
  std::map<cudaStream_t, cudaStream_t> streams;
};
