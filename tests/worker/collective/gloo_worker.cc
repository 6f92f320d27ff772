// One rank of a Gloo group as a process, for gloo_process_test.cc. Reduces or gathers repeatedly
// until a collective fails; then prints the error and the seconds that the call took. Prints
// "running" before: after its first reduction, or in its second gather, when the values begin to
// travel.
//   usage: gloo_worker RANK SIZE MEETING_ADDRESS ELEMENTS TIMEOUT_MS reduce|gather
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/collective/gloo_group.h"

namespace cairn {
namespace {

int Main(char** argv) {
  GlooOptions options = {.rank = std::atoi(argv[1])};
  options.rendezvous_address = argv[3];
  const std::string host =
      options.rendezvous_address.substr(0, options.rendezvous_address.rfind(':'));
  for (int r = 0; r < std::atoi(argv[2]); ++r) {
    options.addresses.push_back(absl::StrCat(host, ":", 5000 + r));
  }
  std::vector<float> values(static_cast<size_t>(std::atoi(argv[4])), 1.0F);
  const MutableBuffer buffer = {DType::kFloat32, values.data(),
                                static_cast<int64_t>(values.size())};
  const absl::Duration timeout = absl::Milliseconds(std::atoi(argv[5]));
  const bool gathers = absl::string_view(argv[6]) == "gather";
  std::vector<float> gathered(gathers ? values.size() * options.addresses.size() : 0);
  const auto group = ConnectGloo(options, Deadline::In(absl::Seconds(60)));
  if (!group.ok()) {
    std::printf("connect: %s\n", group.status().ToString().c_str());
    return 2;
  }
  int calls = 0;
  const auto say_running = [&] {
    std::printf("running\n");
    std::fflush(stdout);
  };
  const auto place = [&](absl::Span<const int64_t>) -> absl::StatusOr<MutableBuffer> {
    if (calls == 1) say_running();
    return MutableBuffer{DType::kFloat32, gathered.data(), static_cast<int64_t>(gathered.size())};
  };
  for (;; ++calls) {
    const absl::Duration start = MonotonicNow();
    const Deadline deadline = Deadline::In(timeout);
    const absl::Status status = gathers ? (*group)->AllGatherV(buffer, place, deadline)
                                        : (*group)->AllReduce(ReduceOp::kMean, buffer, deadline);
    if (!status.ok()) {
      std::printf("failed after %.3f s: %s\n", absl::ToDoubleSeconds(MonotonicNow() - start),
                  status.ToString().c_str());
      return 3;
    }
    if (calls == 0 && !gathers) say_running();
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return argc == 7 ? cairn::Main(argv) : 64; }
