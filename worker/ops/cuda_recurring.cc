// CudaDeviceQueue's steps that may recur: deferred calls, captured as a graph.
#include <utility>

#include "common/log.h"
#include "worker/ops/cublas_library.h"
#include "worker/ops/cuda_device_queue.h"

namespace cairn {
namespace {

// Workspace for products in graphs: the largest size that cuBLAS recommends for any GPU.
constexpr size_t kBlasWorkspaceBytes = size_t{32} << 20;

}  // namespace

// A measured step runs call by call: a graph does not show the times of its copies.
void CudaDeviceQueue::BeginRecurring() { defers_ = !measures_ && graphs_.worthwhile(); }

// Makes later work of `stream` wait for the work that `after` has queued.
cudaError_t CudaDeviceQueue::Join(cudaStream_t stream, cudaStream_t after) {
  int number = 0;
  const cudaError_t error = events_.Record(after, &number);
  return error == cudaSuccess ? events_.Await(stream, number) : error;
}

// Captures the deferred calls. Returns false if that fails; no call has then run.
bool CudaDeviceQueue::Capture(CudaGraph* graph) {
  Select();
  const Cublas& cublas = Cublas::Get();
  cudaError_t error = cudaSuccess;
  if (blas_ != nullptr && blas_workspace_ == nullptr) {
    error = cudaMalloc(&blas_workspace_, kBlasWorkspaceBytes);
    // Without a workspace cuBLAS allocates one in each graph.
    if (error == cudaSuccess && cublas.set_workspace(blas_, blas_workspace_, kBlasWorkspaceBytes) !=
                                    CUBLAS_STATUS_SUCCESS) {
      error = cudaErrorInvalidValue;
    }
  }
  if (error == cudaSuccess && error_.ok()) {
    error = graph->Capture(in_.get(), [this] {
      cudaError_t joined = Join(compute_.get(), in_.get());
      if (joined == cudaSuccess) joined = Join(out_.get(), in_.get());
      if (joined != cudaSuccess) return joined;
      deferred_.Issue();
      joined = Join(in_.get(), compute_.get());
      return joined == cudaSuccess ? Join(in_.get(), out_.get()) : joined;
    });
  }
  // No stream may wait outside the graph for an event recorded in it.
  events_.Reset();
  copies_.clear();
  out_lags_ = true;
  if (error == cudaSuccess && error_.ok()) return true;
  if (error != cudaSuccess) cudaGetLastError();
  LOG(WARNING) << device_.text() << ": a recurring step runs without a graph: "
               << (error_.ok() ? cudaGetErrorString(error) : error_.message());
  error_ = absl::OkStatus();
  graphs_.GiveUp(graph);
  return false;
}

void CudaDeviceQueue::IssueDeferred() {
  if (!std::exchange(defers_, false)) return;
  deferred_copies_ = 0;
  if (error_.ok()) deferred_.Issue();
  deferred_.Clear();
}

// Runs the deferred calls at the end of a step: as a graph if the same calls occurred before.
void CudaDeviceQueue::RunDeferred() {
  const CudaGraphs::Choice choice = graphs_.Choose(deferred_.key());
  defers_ = false;
  bool has_graph = choice.graph != nullptr;
  if (choice.capture) has_graph = Capture(choice.graph);
  if (has_graph) {
    Select();
    // After ops that were called before BeginRecurring. The other streams are idle.
    Note(choice.graph->Launch(compute_.get()), "launch of a graph");
  } else {
    deferred_.Issue();
  }
  deferred_copies_ = 0;
  deferred_.Clear();
}

}  // namespace cairn
