// A worker of the soak test: pushes known pushes until it is told to stop; may be killed at any
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/consistency.h"
#include "common/deadline.h"
#include "common/variables/variable_spec.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

inline constexpr char kSoakJob[] = "soak";
inline constexpr int32_t kSoakWorkers = 4;

struct SoakWorkerOptions {
  std::vector<std::string> servers;
  int32_t worker = 0;
  std::string folder;  // directory of stop and progress-WORKER
  int64_t retained_bytes = 0;
  bool ordered = true;  // may be killed: a start resumes at a number
  Consistency consistency;
};

// Thread safety: Run is called once; the other methods by the threads that it starts.
class SoakWorker {
 public:
  explicit SoakWorker(const SoakWorkerOptions& options);
  virtual ~SoakWorker() = default;

  // Connects, works until FOLDER/stop exists, leaves and writes a report of one line to stdout.
  // kDataLoss: a push was lost or doubled.
  absl::Status Run();

 protected:
  using Work = std::function<absl::Status()>;

  virtual std::vector<VariableSpec> Variables() const = 0;
  // The functions of additional threads, which run until Stopped().
  virtual std::vector<Work> Threads() = 0;

  // ",\"key\":1": added to the common report of all workers.
  virtual std::string MoreOfReport() const { return ""; }

  static Deadline Patience() { return Deadline::In(absl::Seconds(100)); }
  PsClient& client() { return *client_; }
  bool Stopped() const;
  // Called before push `number` begins, and after it was acknowledged.
  void NoteBegun(int64_t number);
  void NoteAcknowledged(int64_t number);
  // Waits until ten pushes beyond `seen` are acknowledged, or for a tenth of a second.
  void AwaitMore(int64_t seen);
  // kDataLoss: the message says that push `number` of this worker `what`.
  absl::Status Lost(int64_t number, const std::string& what) const;

  const SoakWorkerOptions options_;
  int64_t begun_before_ = 0;       // highest push begun by any earlier start
  std::atomic<int64_t> begun_{0};  // the last push begun; ordered: acknowledged
  std::atomic<int64_t> acknowledged_{0};

 private:
  absl::Status Connect();
  void RunThread(const Work& work);
  void Report() const;

  const std::string stop_;
  int progress_ = -1;
  std::unique_ptr<PsClient> client_;
  std::atomic<bool> failed_{false};
  absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

// async, ssp: pushes 1, 2, … of KnownPush. Meanwhile a thread pulls, and fails if an acknowledged
// push is not visible exactly once. Ordered, under async: two threads push alternately. Not
// ordered: three threads push concurrently. Under ssp one thread takes steps, and the others push
// between them.
std::unique_ptr<SoakWorker> MakePushingWorker(const SoakWorkerOptions& options);
// sync: contributions 1, 2, … of KnownContribution; each pull checks the results.
std::unique_ptr<SoakWorker> MakeContributingWorker(const SoakWorkerOptions& options);

}  // namespace cairn::test
