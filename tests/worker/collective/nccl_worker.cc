// A worker with a fake GPU of its own, as a process, for gloo_process_test.cc. Sums over the
// workers' GPUs repeatedly until a sum fails; then prints the error and the seconds that the sum
// took.
//   usage: nccl_worker RANK SIZE RENDEZVOUS_ADDRESS ELEMENTS TIMEOUT_MS reduce
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/collective/gloo_group.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ops/device_queue.h"

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
  const auto workers = ConnectGloo(options, Deadline::In(absl::Seconds(60)));
  if (!workers.ok()) {
    std::printf("connect: %s\n", workers.status().ToString().c_str());
    return 2;
  }
  const absl::Duration timeout = absl::Milliseconds(std::atoi(argv[5]));
  const auto ranks = JoinByNccl({Gpu(rank)}, {.workers = workers->get(), .timeout = timeout});
  const auto queue = OpenGpuQueue(Gpu(rank));
  if (!ranks.ok() || !queue.ok()) {
    std::printf("join: %s\n", ranks.status().ToString().c_str());
    return 2;
  }
  const auto count = static_cast<size_t>(std::atoi(argv[4]));
  const auto memory = (*queue)->AllocateDevice(count * sizeof(float));
  if (!memory.ok()) return 2;
  const RankSum sum = {static_cast<float*>(*memory), count, RankSum::kAllRanks};
  for (bool first = true;; first = false) {
    const absl::Duration start = MonotonicNow();
    (*queue)->ops().Zero(sum.x, count);
    (*queue)->Reduce(*ranks->front(), {&sum, 1});
    const absl::Status status = (*queue)->Finish();
    if (!status.ok()) {
      std::printf("failed after %.3f s: sum on rank %d (%s): %s\n",
                  absl::ToDoubleSeconds(MonotonicNow() - start), rank,
                  (*workers)->peer(rank).c_str(), status.ToString().c_str());
      return 3;
    }
    if (first) std::printf("running\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return argc == 7 ? cairn::Main(argv) : 64; }
