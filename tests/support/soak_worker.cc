#include "tests/support/soak_worker.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status.h"

namespace cairn::test {

SoakWorker::SoakWorker(const SoakWorkerOptions& options)
    : options_(options), stop_(options_.folder + "/stop") {}

// Pushes begun by an earlier start may be on only some servers, so they are all pushed again.
bool SoakWorker::Stopped() const {
  return failed_ || (begun_ >= begun_before_ && access(stop_.c_str(), F_OK) == 0);
}

void SoakWorker::NoteBegun(int64_t number) {
  if (number > begun_before_) (void)!pwrite(progress_, &number, sizeof number, sizeof number);
}

void SoakWorker::NoteAcknowledged(int64_t number) {
  {
    absl::MutexLock lock(&mutex_);
    acknowledged_ = number;
  }
  (void)!pwrite(progress_, &number, sizeof number, 0);
}

void SoakWorker::AwaitMore(int64_t seen) {
  const auto more = [&] { return acknowledged_ >= seen + 10; };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&more), absl::Milliseconds(100));
}

absl::Status SoakWorker::Lost(int64_t number, const std::string& what) const {
  return absl::DataLossError(
      absl::StrCat("push ", number, " of worker ", options_.worker, " ", what));
}

absl::Status SoakWorker::Connect() {
  ClientOptions options = {.job = kSoakJob,
                           .worker = options_.worker,
                           .task = absl::StrCat("worker:", options_.worker),
                           .servers = options_.servers,
                           .ps_wait = absl::Seconds(90),
                           .rpc_timeout = absl::Seconds(2),
                           .consistency = options_.consistency,
                           .expected_workers = kSoakWorkers,
                           .retained_bytes = options_.retained_bytes};
  ASSIGN_OR_RETURN(client_, PsClient::Connect(options, Patience()));
  RETURN_IF_ERROR(client_->Create(Variables(), Patience()));
  int64_t resumed = 0;
  if (!client_->position().empty() && !absl::SimpleAtoi(client_->position(), &resumed)) {
    return absl::InternalError(absl::StrCat("position \"", client_->position(), "\""));
  }
  begun_ = acknowledged_ = resumed;
  std::fprintf(stderr, "worker %d goes on after push %ld\n", options_.worker,
               static_cast<long>(resumed));
  return absl::OkStatus();
}

void SoakWorker::RunThread(const Work& work) {
  const absl::Status status = work();
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = status;
  failed_ = true;
}

absl::Status SoakWorker::Run() {
  const std::string file = absl::StrCat(options_.folder, "/progress-", options_.worker);
  progress_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (progress_ < 0) return absl::UnavailableError("cannot open " + file);
  RETURN_IF_ERROR(Connect());
  (void)!pread(progress_, &begun_before_, sizeof begun_before_, sizeof begun_before_);
  std::vector<std::thread> threads;
  for (const Work& work : Threads()) threads.emplace_back([this, work] { RunThread(work); });
  for (std::thread& thread : threads) thread.join();
  {
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
  }
  RETURN_IF_ERROR(client_->Leave(Patience()));
  Report();
  return absl::OkStatus();
}

void SoakWorker::Report() const {
  const ClientCounters counters = client_->counters();
  std::printf(
      "{\"pushes\":%ld,\"late\":%ld,\"retained_bytes_max\":%ld,\"replayed_pushes\":%ld,"
      "\"replay_seconds\":%.3f%s}\n",
      static_cast<long>(begun_), static_cast<long>(counters.pushes_late),
      static_cast<long>(counters.retained_bytes_max), static_cast<long>(counters.replayed_pushes),
      counters.replay_seconds, MoreOfReport().c_str());
}

}  // namespace cairn::test
