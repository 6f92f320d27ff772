// A real cairn-ps process, for tests that kill and restart it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/support/temp_dir.h"

namespace cairn {

struct PsOptions {
  // Path of cairn-ps; empty: $CAIRN_PS, which every meson test() that starts servers sets.
  std::string program;
  std::string data_dir;  // --data_dir; the caller keeps it between starts
  int32_t task_index = 0;
  int32_t ps_count = 1;
  int32_t port = 0;        // of OwnHost(); 0: an OwnPort(). A restart passes the port clients know
  std::string durability;  // --durability; empty: the program's default
  std::vector<std::string> flags;  // further flags, "--memory_budget_bytes=1000000"
  // RLIMIT_FSIZE of the process, with SIGXFSZ ignored: larger writes fail (EFBIG). 0: no limit.
  int64_t file_size_limit_bytes = 0;
  // Limit of Start, and of the wait for the end in Terminate, Kill and the destructor.
  absl::Duration timeout = absl::Seconds(60);
};

// How a process ended: `code` is its exit status, or -1 if `signal` ended it.
struct PsExit {
  int code = 0;
  int signal = 0;
  std::string log;  // its stdout and stderr
};

// The destructor ends the process (SIGKILL), and so does the kernel when the thread that started it
// ends: start servers from a thread that outlives them. Thread safety: one thread at a time, except
// pid, port, address and log, which any thread may call.
class PsProcess {
 public:
  // Starts the program and waits until it accepts connections.
  // kUnavailable: it ended first, or did not accept within the timeout; the message has its log.
  static absl::StatusOr<std::unique_ptr<PsProcess>> Start(const PsOptions& options);
  // Starts a program that is expected to refuse, and waits for its end. kDeadlineExceeded: it still
  // ran after the timeout, and was killed.
  static absl::StatusOr<PsExit> RunToExit(const PsOptions& options);

  ~PsProcess();
  PsProcess(const PsProcess&) = delete;
  PsProcess& operator=(const PsProcess&) = delete;

  pid_t pid() const { return pid_; }
  int32_t port() const { return port_; }
  const std::string& address() const { return address_; }  // "127.31.4.9:20000"
  std::string log() const;                                 // stdout and stderr so far
  bool running();

  // SIGKILL: no destructor runs, nothing is flushed. Returns when the process is gone.
  PsExit Kill();
  // SIGTERM, then waits for the end. kDeadlineExceeded as in RunToExit.
  absl::StatusOr<PsExit> Terminate();
  // Waits for the process to end by itself. kDeadlineExceeded as in RunToExit.
  absl::StatusOr<PsExit> Wait();

 private:
  explicit PsProcess(const PsOptions& options) : options_(options) {}

  absl::Status Spawn();
  absl::Status WaitUntilAccepting();
  bool ReadPortFile();
  bool ExitedWithin(absl::Duration timeout);
  PsExit Exit() const;

  const PsOptions options_;
  const TempDir folder_;  // cluster file, port file, log
  pid_t pid_ = -1;
  int32_t port_ = 0;
  std::string address_;
  int wait_status_ = 0;
  bool ended_ = true;
};

}  // namespace cairn
