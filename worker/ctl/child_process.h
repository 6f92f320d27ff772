// A child process of a launcher, with its output.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/descriptor.h"

namespace cairn {

// How a process ended, as messages and exit statuses state it.
struct Ending {
  int code = 0;    // exit status
  int signal = 0;  // > 0: the signal that ended it

  bool failed() const { return code != 0 || signal != 0; }
  // As a shell gives it: 128 + signal.
  int exit_status() const { return signal != 0 ? 128 + signal : code; }
  // "ended with status 1", "was ended by signal 9 (Killed)".
  std::string Text() const;
};

// Runs in its own process group, so that Ctrl-C on the terminal reaches the launcher alone. Its
// stdin is /dev/null. Thread safety: none; the thread that calls Start must live as long as the
// child process does.
class ChildProcess {
 public:
  enum Stream { kOut = 0, kErr = 1 };

  ChildProcess() = default;
  // Sends SIGKILL if the process still runs, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Starts `command`, whose first word is the program's path. Call it only if no process runs and
  // the output of the last one has been read. `orphan_signal` is sent to the process when its owner
  // ends for any reason. `environment` ("NAME=value") is added to the launcher's environment and
  // takes precedence. kNotFound, kPermissionDenied, …: the program cannot be started; the message
  // names it.
  absl::Status Start(const std::vector<std::string>& command, int orphan_signal,
                     const std::vector<std::string>& environment = {});

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Returns true once, when the process has ended, and then sets `ending`.
  bool Reap(Ending* ending);

  // The descriptor to poll for input; -1: closed.
  int file(Stream stream) const { return files_[stream].get(); }
  // Appends the available output, at most some 64 KiB, without waiting. Closes the stream at its
  // end.
  void Read(Stream stream, std::string* out);

 private:
  pid_t pid_ = -1;
  Descriptor files_[2];
};

}  // namespace cairn
