// Sends mutated calls of every method to a live server with a real engine, over loopback. The
// server must answer or close within the timeout, keep the values of a bystander, and not grow.
// --frames=N (20000) --seed=S (1) --threads=T (2) --growth_mib=G (64). Under AddressSanitizer set
// ASAN_OPTIONS=quarantine_size_mb=16; otherwise its quarantine counts as growth.
#include <glog/logging.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/value_format.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/temp_dir.h"
#include "tests/thrift/examples.h"
#include "tests/thrift/raw_socket.h"
#include "thrift/client/wire_client.h"
#include "thrift/convert.h"

ABSL_FLAG(int64_t, frames, 20000, "Frames to send");
ABSL_FLAG(uint64_t, seed, 1,
          "Of the random numbers; the same frames for the same seed and threads");
ABSL_FLAG(int, threads, 2, "Senders");
ABSL_FLAG(int64_t, growth_mib, 64, "Bound of the growth of resident memory after the warm-up");

namespace cairn {
namespace {

using Random = std::mt19937_64;

Deadline Soon() { return Deadline::In(absl::Seconds(30)); }

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "fuzz_frames: %s\n", why.c_str());
  std::_Exit(1);
}

void Require(const absl::Status& status) {
  if (!status.ok()) Fail(status.ToString());
}

size_t Below(Random& random, size_t bound) {
  return bound == 0 ? 0 : std::uniform_int_distribution<size_t>(0, bound - 1)(random);
}

// Encodes the values of `step` and requests those of its reply in other formats.
void EncodeItems(ValueFormat push, ValueFormat pull, wire::StepRequest* step) {
  for (wire::PushItem& item : step->push.items) {
    const bool is_whole = item.selection == wire::Selection::WHOLE;
    const ValueFormat format = is_whole || push != ValueFormat::kTopK ? push : ValueFormat::kInt8;
    const absl::Span<const float> values = item.values.As<float>();
    const int64_t width = 4, rows = static_cast<int64_t>(values.size()) / width;
    Payload bytes = Payload::Uninitialized(
        format == ValueFormat::kTopK ? TopKBytes(3) : EncodedBytes(format, rows, width));
    if (format == ValueFormat::kTopK) {
      EncodeTopK(values, 3, bytes.mutable_data());
    } else {
      EncodeValues(format, values.data(), rows, width, bytes.mutable_data());
    }
    item.values = std::move(bytes);
    item.format = ToWire(format);
  }
  for (wire::PullItem& item : step->pull.items) item.format = ToWire(pull);
}

// The calls of the examples, and those of a worker with sequenced pushes.
std::vector<std::string> Seeds() {
  std::vector<std::string> frequent;
  std::vector<std::string> rare;  // they wait for the disk, or delete the variables
  for (const ExampleFrame& frame : ExampleFrames()) {
    const bool is_rare =
        frame.method == "flush" || frame.method == "leave" || frame.method == "drop_job";
    (is_rare ? rare : frequent).push_back(frame.bytes);
  }
  wire::Caller worker = ExampleCaller();
  worker.worker = 0;
  worker.incarnation = 1;
  for (int64_t sequence = 1; sequence <= 3; ++sequence) {
    wire::StepRequest step = ExampleStep();
    step.push.caller = worker;
    step.push.sequence.sequence = sequence;
    step.push.sequence.after = sequence - 1;
    step.pull.caller = worker;
    step.pull.items[1].slot = "";
    frequent.push_back(FrameOf([&](auto& client) { client.send_step(step); }));
    frequent.push_back(FrameOf([&](auto& client) { client.send_push(step.push); }));
    frequent.push_back(FrameOf([&](auto& client) { client.send_pull(step.pull); }));
    for (const ValueFormat format :
         {ValueFormat::kFloat16, ValueFormat::kInt8, ValueFormat::kTopK}) {
      wire::StepRequest encoded = step;
      EncodeItems(format, format == ValueFormat::kTopK ? ValueFormat::kBFloat16 : format, &encoded);
      frequent.push_back(FrameOf([&](auto& client) { client.send_step(encoded); }));
    }
  }
  wire::HelloRequest hello = ExampleHello();
  hello.worker = 0;
  frequent.push_back(FrameOf([&](auto& client) { client.send_hello(hello); }));
  std::vector<std::string> seeds = rare;
  for (int copy = 0; copy < 5; ++copy) {
    seeds.insert(seeds.end(), frequent.begin(), frequent.end());
  }
  return seeds;
}

void Overwrite(std::string& frame, size_t at, const std::string& with) {
  const size_t bytes = std::min(with.size(), frame.size() - at);
  frame.replace(at, bytes, with, 0, bytes);
}

std::string InterestingNumber(Random& random) {
  static const std::vector<int32_t> kInts = {-1,
                                             0,
                                             1,
                                             2,
                                             8,
                                             17,
                                             127,
                                             32768,
                                             65535,
                                             65536,
                                             65537,
                                             1 << 20,
                                             1 << 30,
                                             std::numeric_limits<int32_t>::max(),
                                             std::numeric_limits<int32_t>::min(),
                                             -65536,
                                             0x80010001 - (int64_t{1} << 32)};
  const std::string low = BigEndian32(kInts[Below(random, kInts.size())]);
  if (Below(random, 2) == 0) return low;
  static const std::vector<std::string> kHigh = {BigEndian32(0), BigEndian32(-1),
                                                 BigEndian32(0x7ff00000), BigEndian32(0x7fffffff),
                                                 BigEndian32(std::numeric_limits<int32_t>::min())};
  return kHigh[Below(random, kHigh.size())] + low;
}

void Mutate(std::string& frame, const std::vector<std::string>& seeds, Random& random) {
  const size_t at = Below(random, frame.size());
  const size_t length = 1 + Below(random, std::min<size_t>(64, frame.size() - at + 1));
  switch (Below(random, 9)) {
    case 0: frame[at] = static_cast<char>(frame[at] ^ (1 << Below(random, 8))); break;
    case 1: frame[at] = static_cast<char>(Below(random, 256)); break;
    case 2: frame[at] = static_cast<char>(Below(random, 17)); break;  // often a type
    case 3: Overwrite(frame, at, InterestingNumber(random)); break;
    case 4: frame.resize(at); break;
    case 5: frame.insert(at, std::string(length, static_cast<char>(Below(random, 256)))); break;
    case 6: frame.erase(at, length); break;
    case 7: frame.insert(at, frame.substr(Below(random, frame.size()), length)); break;
    case 8: {
      const std::string& other = seeds[Below(random, seeds.size())];
      frame = frame.substr(0, at) + other.substr(Below(random, other.size()));
      break;
    }
  }
  if (frame.empty()) frame.assign(1, '\0');
}

std::string NextFrame(const std::vector<std::string>& seeds, Random& random) {
  const size_t kind = Below(random, 20);
  if (kind == 0) {  // random bytes
    std::string frame(1 + Below(random, 300), '\0');
    for (char& byte : frame) byte = static_cast<char>(Below(random, 256));
    return frame;
  }
  std::string frame = seeds[Below(random, seeds.size())];
  if (kind == 1) return frame;  // unchanged, so that variables exist to be corrupted
  for (size_t count = 1 + Below(random, 4); count > 0; --count) Mutate(frame, seeds, random);
  return frame;
}

// Variables that no other caller names; they must not change.
class Bystander {
 public:
  explicit Bystander(const std::string& address)
      : client_(WireClient::Connect(address, {}, Soon()).value()) {
    wire::ServerState state;
    wire::AssignRequest assign;
    assign.caller.job = "bystander";
    assign.items.resize(1);
    assign.items[0].variable = "w";
    assign.items[0].values = Values();
    wire::PushReply reply;
    Require(client_->Call("create_variables", Soon(), [&](auto& stub) {
      stub.create_variables(state, assign.caller, {ExampleDenseSpec()});
    }));
    Require(client_->Call("assign", Soon(), [&](auto& stub) { stub.assign(reply, assign); }));
  }
  void Check() {
    wire::PullRequest pull;
    pull.caller.job = "bystander";
    pull.items.resize(1);
    pull.items[0].variable = "w";
    wire::PullReply reply;
    Require(client_->Call("pull", Soon(), [&](auto& stub) { stub.pull(reply, pull); }));
    if (reply.items.size() != 1 || !(reply.items[0].values == Values())) {
      Fail("the bystander's values have changed");
    }
  }
  int64_t ServerMemoryBytes() {
    wire::DescribeRequest describe;
    describe.caller.job = "bystander";
    wire::DescribeReply reply;
    Require(client_->Call("describe", Soon(), [&](auto& stub) { stub.describe(reply, describe); }));
    return reply.memory_used_bytes;
  }

 private:
  static Payload Values() {
    std::vector<float> values(24);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 3;
    return Payload::Copy(values.data(), values.size() * sizeof(float));
  }

  std::unique_ptr<WireClient> client_;
};

// Sends about `frames` frames, one to four on each connection.
void Send(const std::string& address, const std::vector<std::string>& seeds, int64_t frames,
          uint64_t seed, std::atomic<int64_t>& sent) {
  Random random(seed);
  while (frames > 0) {
    RawSocket socket = RawSocket::Connect(address);
    for (size_t count = 1 + Below(random, 4); count > 0 && frames > 0; --count, --frames) {
      ++sent;
      if (!socket.Send(NextFrame(seeds, random))) break;
    }
    if (Below(random, 4) == 0) {
      socket.CloseWithReset();  // during whatever the server does
      continue;
    }
    socket.EndSending();
    if (!socket.ReceiveToEnd()) Fail("the server neither answered nor closed within 20 s");
    socket.CloseWithReset();
  }
}

int64_t ResidentBytes() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * ::getpagesize();
}

struct Memory {
  int64_t resident = ResidentBytes();
  int64_t in_variables = 0;
};

void Round(const std::string& address, int64_t frames, uint64_t seed, Bystander& bystander,
           std::atomic<int64_t>& sent) {
  static const std::vector<std::string> seeds = Seeds();
  const int threads = absl::GetFlag(FLAGS_threads);
  std::vector<std::thread> senders;
  for (int t = 0; t < threads; ++t) {
    senders.emplace_back([&, t] { Send(address, seeds, frames / threads, seed * 1000 + t, sent); });
  }
  for (std::thread& sender : senders) sender.join();
  bystander.Check();
}

int Main() {
  // As in cairn-ps: memory that malloc keeps must not count as growth.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 8 << 20);
  const TempDir folder;
  FLAGS_log_dir = folder.path();
  FLAGS_stderrthreshold = google::GLOG_FATAL;
  google::InitGoogleLogging("fuzz_frames");
  EngineOptions options;
  options.directory = folder.Join("ps");
  options.memory_budget_bytes = int64_t{512} << 20;
  options.memory_wait = absl::Milliseconds(10);
  options.snapshot_interval = absl::Seconds(1);
  const std::unique_ptr<Engine> engine = Engine::Open(options).value();
  ListenerOptions listener_options;
  listener_options.max_message_bytes = 16 << 20;
  const std::unique_ptr<Listener> listener =
      Listener::Start(*engine, OnOwnAddress(listener_options)).value();
  Bystander bystander(listener->address());

  const int64_t frames = absl::GetFlag(FLAGS_frames);
  const int64_t per_round = std::max<int64_t>(100, std::min<int64_t>(2000, frames / 20));
  const int64_t warm_up = std::max<int64_t>(frames / 5, 1);
  std::atomic<int64_t> sent = 0;
  uint64_t seed = absl::GetFlag(FLAGS_seed);
  while (sent < warm_up) Round(listener->address(), per_round, seed++, bystander, sent);
  const Memory before{.in_variables = bystander.ServerMemoryBytes()};
  while (sent < frames) Round(listener->address(), per_round, seed++, bystander, sent);
  const Memory after{.in_variables = bystander.ServerMemoryBytes()};

  // The server may keep the variables that mutated calls have created, within its budget.
  const int64_t made = std::max<int64_t>(0, after.in_variables - before.in_variables);
  const int64_t growth = after.resident - before.resident - made;
  std::printf(
      "{\"frames\": %lld, \"rss_before_mib\": %lld, \"rss_after_mib\": %lld, "
      "\"variables_mib\": %lld, \"growth_mib\": %lld}\n",
      static_cast<long long>(sent.load()), static_cast<long long>(before.resident >> 20),
      static_cast<long long>(after.resident >> 20),
      static_cast<long long>(after.in_variables >> 20), static_cast<long long>(growth >> 20));
  std::fflush(stdout);
  if (growth > absl::GetFlag(FLAGS_growth_mib) << 20) Fail("resident memory has grown");
  listener->Stop();
  Require(engine->Close());
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return cairn::Main();
}
