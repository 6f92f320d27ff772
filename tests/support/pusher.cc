// A worker that pushes known pushes until it is told to stop, for tests that kill it.
//
//   cairn-pusher push SERVERS WORKER FOLDER RETAINED_BYTES (ordered|free)
//     Pushes 1, 2, … of KnownPush, from where the servers say that it was when it was killed,
//     until FOLDER/stop is there and every push that any start began is acknowledged; then leaves,
//     and writes {"pushes":N,…} to stdout. FOLDER/progress-WORKER holds two numbers of 8 bytes: of
//     the last push acknowledged, and the highest begun by any start. Meanwhile a thread pulls and
//     fails (exit 5) where an acknowledged push is not seen exactly once.
//     ordered: two threads take turns, since a start resumes at a number. free: three threads
//     push at once; such a worker cannot be resumed, so it must not be killed.
//     Exit status: 0 left; 3 fenced by another start; 5 a push was lost or doubled; 1 else.
//   cairn-pusher check SERVERS COUNT,COUNT,…
//     Compares what the servers hold with so many pushes of each worker.
//
// SERVERS: host:port,host:port,host:port
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "tests/support/known_pushes.h"
#include "thrift/errors.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

constexpr char kJob[] = "soak";

Deadline Patience() { return Deadline::In(absl::Seconds(100)); }

struct PusherOptions {
  std::vector<std::string> servers;
  int32_t worker = 0;
  std::string folder;
  int64_t retained_bytes = 0;
  bool ordered = true;
};

class Pusher {
 public:
  explicit Pusher(const PusherOptions& options) : options_(options) {}

  absl::Status Run();

 private:
  absl::Status Connect();
  void PushUntilStopped();
  absl::Status PushNext(KnownPush& push);
  void WatchUntilStopped();
  absl::Status SeeLast();
  void Fail(const absl::Status& status);
  // What a start before this one began may be on some servers only: it is pushed to the end.
  bool Stopped() const {
    return failed_ || (begun_ >= begun_before_ && access(stop_.c_str(), F_OK) == 0);
  }
  void Note(int64_t value, off_t offset) const {
    (void)!pwrite(progress_, &value, sizeof value, offset);
  }

  const PusherOptions options_;
  const std::string stop_ = options_.folder + "/stop";
  int progress_ = -1;
  int64_t begun_before_ = 0;
  std::unique_ptr<PsClient> client_;
  absl::Mutex order_;
  std::atomic<int64_t> begun_{0};  // number of the last push begun; ordered: acknowledged
  std::atomic<int64_t> acknowledged_{0};
  std::atomic<bool> failed_{false};
  absl::Mutex mutex_;
  absl::Status failure_;
};

absl::Status Pusher::Connect() {
  ClientOptions options = {.job = kJob,
                           .worker = options_.worker,
                           .task = absl::StrCat("worker:", options_.worker),
                           .servers = options_.servers,
                           .ps_wait = absl::Seconds(90),
                           .rpc_timeout = absl::Seconds(2),
                           .retained_bytes = options_.retained_bytes};
  ASSIGN_OR_RETURN(client_, PsClient::Connect(options, Patience()));
  RETURN_IF_ERROR(client_->Create(KnownVariables(), Patience()));
  int64_t resumed = 0;
  if (!client_->position().empty() && !absl::SimpleAtoi(client_->position(), &resumed)) {
    return absl::InternalError(absl::StrCat("position \"", client_->position(), "\""));
  }
  begun_ = acknowledged_ = resumed;
  std::fprintf(stderr, "worker %d goes on after push %ld\n", options_.worker,
               static_cast<long>(resumed));
  return absl::OkStatus();
}

void Pusher::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = status;
  failed_ = true;
}

absl::Status Pusher::PushNext(KnownPush& push) {
  if (!options_.ordered) {
    const int64_t number = ++begun_;
    RETURN_IF_ERROR(client_->Push(push.Make(options_.worker, number), "", Patience()));
    acknowledged_ = begun_.load();
    return absl::OkStatus();
  }
  absl::MutexLock lock(&order_);
  const int64_t number = begun_ + 1;
  if (number > begun_before_) Note(number, sizeof number);
  RETURN_IF_ERROR(
      client_->Push(push.Make(options_.worker, number), absl::StrCat(number), Patience()));
  begun_ = acknowledged_ = number;
  return absl::OkStatus();
}

void Pusher::PushUntilStopped() {
  KnownPush push;
  while (!Stopped()) {
    if (const absl::Status status = PushNext(push); !status.ok()) return Fail(status);
    Note(acknowledged_, 0);
  }
}

// A worker sees what was acknowledged to it, whatever servers forgot since.
absl::Status Pusher::SeeLast() {
  std::vector<int64_t> keys;
  const int64_t last = acknowledged_;
  for (int64_t number = last; number > 0 && number > last - 20; --number) {
    if (number % 5 != 0) keys.push_back(SeenKey(options_.worker, number));
  }
  if (keys.empty()) return absl::OkStatus();
  std::vector<float> seen(keys.size());
  RETURN_IF_ERROR(client_->Pull({{.variable = "seen",
                                  .part = Part::kKeys,
                                  .ids = keys,
                                  .out = AsWritableBytes(absl::MakeSpan(seen))}},
                                Patience()));
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == 1) continue;
    return absl::DataLossError(
        absl::StrCat("push ", keys[i] & 0xffffffffff, " of worker ", options_.worker,
                     ", acknowledged to this start or the one before, counts ", seen[i], " times"));
  }
  return absl::OkStatus();
}

void Pusher::WatchUntilStopped() {
  for (int64_t seen = 0; !Stopped(); seen = acknowledged_) {
    const auto more = [&] { return acknowledged_ >= seen + 10; };
    {
      absl::MutexLock lock(&order_);
      order_.AwaitWithTimeout(absl::Condition(&more), absl::Milliseconds(100));
    }
    if (const absl::Status status = SeeLast(); !status.ok()) return Fail(status);
  }
}

absl::Status Pusher::Run() {
  const std::string file = absl::StrCat(options_.folder, "/progress-", options_.worker);
  progress_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (progress_ < 0) return absl::UnavailableError("cannot open " + file);
  RETURN_IF_ERROR(Connect());
  (void)!pread(progress_, &begun_before_, sizeof begun_before_, sizeof begun_before_);
  std::vector<std::thread> threads;
  for (int t = 0; t < (options_.ordered ? 2 : 3); ++t) {
    threads.emplace_back([this] { PushUntilStopped(); });
  }
  if (options_.ordered) threads.emplace_back([this] { WatchUntilStopped(); });
  for (std::thread& thread : threads) thread.join();
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
  }
  RETURN_IF_ERROR(client_->Leave(Patience()));
  const ClientCounters counters = client_->counters();
  std::printf(
      "{\"pushes\":%ld,\"retained_bytes_max\":%ld,\"replayed_pushes\":%ld,\"replay_seconds\":%.3f}"
      "\n",
      static_cast<long>(begun_), static_cast<long>(counters.retained_bytes_max),
      static_cast<long>(counters.replayed_pushes), counters.replay_seconds);
  return absl::OkStatus();
}

absl::Status Check(const std::vector<std::string>& servers, absl::string_view list) {
  std::vector<int64_t> counts;
  for (const absl::string_view text : absl::StrSplit(list, ',')) {
    if (!absl::SimpleAtoi(text, &counts.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("count \"", text, "\""));
    }
  }
  return CheckKnownPushes(servers, kJob, counts);
}

absl::Status Main(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "check") {
    return Check(absl::StrSplit(words[1], ','), words[2]);
  }
  PusherOptions options;
  if (words.size() != 6 || words[0] != "push" || !absl::SimpleAtoi(words[2], &options.worker) ||
      !absl::SimpleAtoi(words[4], &options.retained_bytes)) {
    return absl::InvalidArgumentError("see the head of tests/support/pusher.cc");
  }
  options.servers = absl::StrSplit(words[1], ',');
  options.folder = words[3];
  options.ordered = words[5] == "ordered";
  return Pusher(options).Run();
}

int ExitStatus(const absl::Status& status) {
  if (status.ok()) return 0;
  if (ReasonOf(status) == wire::ErrorReason::FENCED) return 3;
  return absl::IsDataLoss(status) ? 5 : 1;
}

}  // namespace
}  // namespace cairn::test

int main(int argc, char** argv) {
  const absl::Status status = cairn::test::Main({argv + 1, argv + argc});
  if (!status.ok()) std::fprintf(stderr, "cairn-pusher: %s\n", status.ToString().c_str());
  return cairn::test::ExitStatus(status);
}
