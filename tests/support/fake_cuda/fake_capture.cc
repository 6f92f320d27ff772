#include "tests/support/fake_cuda/fake_capture.h"

#include <algorithm>
#include <utility>

#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_registry.h"

namespace cairn::test::fake {

void Capture::Add(cudaStream_t stream, std::function<void()> work) {
  items_.push_back({Kind::kWork, stream, std::move(work)});
  seen_[stream][stream] = ++counts_[stream];
}

size_t Capture::Record(cudaStream_t stream) {
  Add(stream, nullptr);
  items_.back().kind = Kind::kRecord;
  items_.back().event = recorded_.size();
  recorded_.push_back(seen_[stream]);
  return recorded_.size() - 1;
}

void Capture::Wait(cudaStream_t stream, size_t event) {
  items_.push_back({Kind::kWait, stream, nullptr, event});
  counts_[stream] += 0;
  for (const auto& [of, count] : recorded_[event]) {
    size_t& seen = seen_[stream][of];
    seen = std::max(seen, count);
  }
}

bool Capture::IsJoined() const {
  const auto origin = seen_.find(origin_);
  return std::all_of(counts_.begin(), counts_.end(), [&](const auto& count) {
    if (count.first == origin_ || count.second == 0) return true;
    if (origin == seen_.end()) return false;
    const auto seen = origin->second.find(count.first);
    return seen != origin->second.end() && seen->second == count.second;
  });
}

void Capture::End() {
  origin_->capture = nullptr;
  for (const auto& [stream, count] : counts_) stream->capture = nullptr;
}

void Capture::Launch(cudaStream_t origin, std::map<cudaStream_t, cudaStream_t>* others) const {
  std::vector<std::shared_ptr<CUevent_st::Recording>> events(recorded_.size());
  for (std::shared_ptr<CUevent_st::Recording>& event : events) {
    event = std::make_shared<CUevent_st::Recording>();
  }
  for (const Item& item : items_) {
    cudaStream_t stream = origin;
    if (item.stream != origin_) {
      cudaStream_t& other = (*others)[item.stream];
      if (other == nullptr) other = AddStream(item.stream->device());
      stream = other;
    }
    if (item.kind == Kind::kWork) {
      stream->Push(item.work);
    } else if (item.kind == Kind::kRecord) {
      stream->Push([event = events[item.event]] { event->Complete(1); });
    } else {
      stream->Push([event = events[item.event]] { event->Await(1); });
    }
  }
}

}  // namespace cairn::test::fake

using namespace cairn::test::fake;  // NOLINT: the functions below are CUDA's

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (cudaError_t error = Call("cudaStreamBeginCapture", stream); error != cudaSuccess) {
    return error;
  }
  stream->capture = std::make_shared<Capture>(stream);
  ++Captures();
  return cudaSuccess;
}

// Ends the capture also when it fails.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  cudaError_t error = Call("cudaStreamEndCapture", stream);
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin() != stream) return cudaErrorInvalidValue;
  --Captures();
  capture->End();
  if (error == cudaSuccess && !capture->IsJoined()) error = cudaErrorStreamCaptureUnjoined;
  if (error == cudaSuccess) *graph = new CUgraph_st{capture};
  return error;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (cudaError_t error = Call("cudaGraphInstantiate"); error != cudaSuccess) return error;
  *exec = new CUgraphExec_st{graph->capture, {}};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (cudaError_t error = Call("cudaGraphLaunch", stream); error != cudaSuccess) return error;
  exec->capture->Launch(stream, &exec->streams);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  for (const auto& [captured, stream] : exec->streams) RemoveStream(stream);
  delete exec;
  return cudaSuccess;
}
