// One rank of an NCCL group as a process with a fake GPU of its own, for gloo_process_test.cc.
// Reduces repeatedly until a collective fails; then prints the error and the seconds that the call
// took.
//   usage: nccl_worker RANK SIZE RENDEZVOUS_ADDRESS ELEMENTS TIMEOUT_MS
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/collective/gloo_group.h"
#include "worker/collective/nccl_group.h"

namespace cairn {
namespace {

int Main(char** argv) {
  const int rank = std::atoi(argv[1]);
  GlooOptions options = {.rank = rank};
  options.rendezvous_address = argv[3];
  const std::string host =
      options.rendezvous_address.substr(0, options.rendezvous_address.rfind(':'));
  for (int r = 0; r < std::atoi(argv[2]); ++r) {
    options.addresses.push_back(absl::StrCat(host, ":", 5000 + r));
  }
  const Deadline soon = Deadline::In(absl::Seconds(60));
  const auto bootstrap = ConnectGloo(options, soon);
  if (!bootstrap.ok()) {
    std::printf("connect: %s\n", bootstrap.status().ToString().c_str());
    return 2;
  }
  const auto group = ConnectNccl(**bootstrap, {.device = rank}, soon);
  if (!group.ok()) {
    std::printf("connect: %s\n", group.status().ToString().c_str());
    return 2;
  }
  const int64_t count = std::atoi(argv[4]);
  void* memory = nullptr;
  cudaSetDevice(rank);
  if (cudaMalloc(&memory, static_cast<size_t>(count) * sizeof(float)) != cudaSuccess) return 2;
  const MutableBuffer buffer = {DType::kFloat32, memory, count};
  const absl::Duration timeout = absl::Milliseconds(std::atoi(argv[5]));
  for (bool first = true;; first = false) {
    const absl::Duration start = MonotonicNow();
    const absl::Status status = (*group)->AllReduce(ReduceOp::kMean, buffer, Deadline::In(timeout));
    if (!status.ok()) {
      std::printf("failed after %.3f s: %s\n", absl::ToDoubleSeconds(MonotonicNow() - start),
                  status.ToString().c_str());
      return 3;
    }
    if (first) std::printf("reducing\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return argc == 6 ? cairn::Main(argv) : 64; }
