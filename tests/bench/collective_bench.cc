// All-reduce of float32 across two processes on loopback, compared with the fastest of Gloo's own
// ring algorithms with Gloo's own sum, in the same processes, in alternating rounds. A line gives
// the median over rounds; the same run checks the sums. --rounds=N (9), --max_kib=N (all sizes).
#include <gloo/allreduce.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "tests/bench/bench.h"
#include "tests/support/temp_dir.h"
#include "worker/collective/control_server.h"
#include "worker/collective/gloo_group.h"

extern char** environ;

ABSL_FLAG(int, rounds, 9, "Rounds of each side");
ABSL_FLAG(uint64_t, max_kib, 1 << 20, "Leaves out larger sizes");
ABSL_FLAG(int, rank, 0, "Of the second process, which the first starts: 1");
ABSL_FLAG(std::string, rendezvous, "", "Where the two processes meet");
ABSL_FLAG(std::string, store, "", "Folder of Gloo's file store");

namespace cairn {
namespace {

constexpr size_t kMiB = 1 << 20;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

double Seconds(const std::function<void()>& call, int calls) {
  const absl::Duration start = MonotonicNow();
  for (int i = 0; i < calls; ++i) call();
  return absl::ToDoubleSeconds(MonotonicNow() - start) / calls;
}

MutableBuffer Into(std::vector<float>& values) {
  return {DType::kFloat32, values.data(), static_cast<int64_t>(values.size())};
}

bool AllEqual(const std::vector<float>& values, float expected) {
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == expected; });
}

// Gloo's own algorithms over separate connections.
class GlooRings {
 public:
  GlooRings(int rank, const std::string& folder, std::vector<float>& values) : values_(values) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    context->connectFullMesh(store, device);
    context_ = context;
    const std::vector<float*> pointers = {values.data()};
    const int count = static_cast<int>(values.size());
    ring_ = std::make_unique<gloo::AllreduceRing<float>>(context_, pointers, count);
    chunked_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, pointers, count);
  }
  void Ring() { ring_->run(); }
  void Chunked() { chunked_->run(); }
  void NewRing() {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(values_.data(), values_.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::vector<float>& values_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::Algorithm> ring_;
  std::unique_ptr<gloo::Algorithm> chunked_;
};

void MeasureProcesses(int rank, const std::string& rendezvous, const std::string& store,
                      size_t bytes, int calls) {
  const size_t count = bytes / sizeof(float);
  GlooOptions options = {.rank = rank, .addresses = {"127.0.0.1:1", "127.0.0.1:2"}};
  options.name = absl::StrCat("bench ", bytes);
  options.rendezvous_address = rendezvous;
  const auto group = ConnectGloo(options, Soon());
  Require(group.status());
  std::vector<float> values(count);
  GlooRings rings(rank, store, values);
  bool verified = true;
  const auto timed = [&](const std::function<void()>& reduce) {
    std::fill(values.begin(), values.end(), 1.0F);
    Require((*group)->Barrier(Soon()));
    const double seconds = Seconds(reduce, calls);
    // Each call doubles the values, which are equal in both processes.
    verified = verified && AllEqual(values, std::ldexp(1.0F, calls));
    return seconds;
  };
  std::vector<double> ours;
  std::vector<double> ring;
  std::vector<double> chunked;
  std::vector<double> new_ring;
  for (int round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    ring.push_back(timed([&] { rings.Ring(); }));
    chunked.push_back(timed([&] { rings.Chunked(); }));
    new_ring.push_back(timed([&] { rings.NewRing(); }));
    ours.push_back(
        timed([&] { Require((*group)->AllReduce(ReduceOp::kSum, Into(values), Soon())); }));
    if (round > 0) continue;  // the first round warms up connections and pages
    for (auto* seconds : {&ring, &chunked, &new_ring, &ours}) seconds->clear();
  }
  if (rank != 0) return;
  const double gloo = std::min({Median(ring), Median(chunked), Median(new_ring)});
  const double ratio = gloo / Median(ours);
  std::printf(
      "{\"name\": \"two_processes_%zuKiB\", \"ratio\": %.3f, \"bar\": \">= 1.00\", \"met\": %s, "
      "\"microseconds\": %.1f, \"gloo_ring_microseconds\": %.1f, "
      "\"gloo_ring_chunked_microseconds\": %.1f, \"gloo_new_ring_microseconds\": %.1f, "
      "\"gigabytes_per_second\": %.2f, \"verified\": %s}\n",
      bytes >> 10, ratio, ratio >= 1 ? "true" : "false", Median(ours) * 1e6, Median(ring) * 1e6,
      Median(chunked) * 1e6, Median(new_ring) * 1e6,
      static_cast<double>(bytes) / Median(ours) / 1e9, verified ? "true" : "false");
  std::fflush(stdout);
}

struct Size {
  size_t bytes;
  int calls;  // in a round
};
constexpr Size kSizes[] = {{64 * kMiB, 4}, {4 * kMiB, 20}, {256 << 10, 60}, {4 << 10, 100}};

// Gloo's stores must exist and be empty before either process uses them.
std::string StoreOf(const std::string& folder, size_t size) {
  return absl::StrCat(folder, "/", size);
}

pid_t StartSecondProcess(const char* program, const std::string& rendezvous,
                         const std::string& folder) {
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    if (::mkdir(StoreOf(folder, i).c_str(), 0700) != 0) Die("mkdir");
  }
  std::vector<std::string> arguments = {program,
                                        "--rank=1",
                                        "--rendezvous=" + rendezvous,
                                        "--store=" + folder,
                                        absl::StrCat("--rounds=", absl::GetFlag(FLAGS_rounds)),
                                        absl::StrCat("--max_kib=", absl::GetFlag(FLAGS_max_kib))};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  if (::posix_spawn(&child, program, nullptr, nullptr, argv.data(), environ) != 0) Die("spawn");
  return child;
}

void MeasureSizes(int rank, const std::string& rendezvous, const std::string& folder) {
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    if (kSizes[i].bytes >> 10 > absl::GetFlag(FLAGS_max_kib)) continue;
    MeasureProcesses(rank, rendezvous, StoreOf(folder, i), kSizes[i].bytes, kSizes[i].calls);
  }
}

int Main(const char* program) {
  std::signal(SIGPIPE, SIG_IGN);
  if (absl::GetFlag(FLAGS_rank) != 0) {
    MeasureSizes(1, absl::GetFlag(FLAGS_rendezvous), absl::GetFlag(FLAGS_store));
    return 0;
  }
  const auto server = ControlServer::Start("127.0.0.1:0").value();
  const TempDir folder;
  const pid_t child = StartSecondProcess(program, server->address(), folder.path());
  MeasureSizes(0, server->address(), folder.path());
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) Die("the second process failed");
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return cairn::Main(argv[0]);
}
