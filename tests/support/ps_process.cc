#include "tests/support/ps_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/deadline.h"
#include "common/status.h"
#include "tests/support/addresses.h"
#include "tests/support/file_text.h"

namespace cairn {
namespace {

// A server binds only the address of its own entry.
std::string ClusterText(const PsOptions& options) {
  const int32_t port = options.port != 0 ? options.port : OwnPort();
  std::string text = "cluster:\n  ps: [";
  for (int32_t i = 0; i < options.ps_count; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "\"", OwnHost(), ":",
                    i == options.task_index ? port : 0, "\"");
  }
  return absl::StrCat(text, "]\n");
}

bool Accepts(const std::string& host, int32_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  const bool connected = inet_pton(AF_INET, host.c_str(), &to.sin_addr) == 1 &&
                         connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  close(fd);
  return connected;
}

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeServer(char* const* arguments, int log, int64_t limit_bytes, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // the parent ended before prctl
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  if (limit_bytes > 0) {
    signal(SIGXFSZ, SIG_IGN);  // inherited through exec
    const rlimit limit{static_cast<rlim_t>(limit_bytes), static_cast<rlim_t>(limit_bytes)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::Status PsProcess::Spawn() {
  std::string program = options_.program;
  if (program.empty() && std::getenv("CAIRN_PS") != nullptr) program = std::getenv("CAIRN_PS");
  if (program.empty() || access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("no cairn-ps at \"", program,
                     "\": set PsOptions::program, or CAIRN_PS by the env: of the meson test()"));
  }
  std::ofstream(folder_.Join("cluster.yaml")) << ClusterText(options_);
  std::vector<std::string> words = {program, "--cluster=" + folder_.Join("cluster.yaml"),
                                    absl::StrCat("--task_index=", options_.task_index),
                                    "--data_dir=" + options_.data_dir,
                                    "--port_file=" + folder_.Join("port")};
  if (!options_.durability.empty()) words.push_back("--durability=" + options_.durability);
  words.insert(words.end(), options_.flags.begin(), options_.flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const int log =
      open(folder_.Join("log").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return absl::UnavailableError(absl::StrCat("log file: ", std::strerror(errno)));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) BecomeServer(arguments.data(), log, options_.file_size_limit_bytes, parent);
  close(log);
  if (child < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  pid_ = child;
  ended_ = false;
  return absl::OkStatus();
}

bool PsProcess::ReadPortFile() {
  const std::string text = FileText(folder_.Join("port"));
  if (text.empty()) return false;  // not written yet
  const std::string address(absl::StripAsciiWhitespace(text));
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port_)) {
    return false;
  }
  address_ = address;
  return Accepts(address.substr(0, colon), port_);
}

// Also polls the process until the condition is true, so that an exit is noticed at once.
absl::Status PsProcess::WaitUntilAccepting() {
  const Deadline deadline = Deadline::In(options_.timeout);
  while (!ReadPortFile()) {
    if (ExitedWithin(absl::Milliseconds(5))) {
      return absl::UnavailableError(absl::StrCat("cairn-ps ended (status ", Exit().code,
                                                 ", signal ", Exit().signal,
                                                 ") before it accepted calls:\n", log()));
    }
    if (deadline.Expired()) {
      return absl::UnavailableError(absl::StrCat("cairn-ps did not accept calls within ",
                                                 absl::FormatDuration(options_.timeout), ":\n",
                                                 log()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PsProcess>> PsProcess::Start(const PsOptions& options) {
  std::unique_ptr<PsProcess> process(new PsProcess(options));
  RETURN_IF_ERROR(process->Spawn());
  RETURN_IF_ERROR(process->WaitUntilAccepting());
  return process;
}

absl::StatusOr<PsExit> PsProcess::RunToExit(const PsOptions& options) {
  PsProcess process(options);
  RETURN_IF_ERROR(process.Spawn());
  return process.Wait();
}

PsProcess::~PsProcess() {
  if (!ended_) Kill();
}

std::string PsProcess::log() const { return FileText(folder_.Join("log")); }

bool PsProcess::running() { return !ExitedWithin(absl::ZeroDuration()); }

// A pidfd becomes readable when its process ends: a wait with a deadline, which waitpid lacks.
bool PsProcess::ExitedWithin(absl::Duration timeout) {
  if (ended_) return true;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (fd >= 0) {
    pollfd waited{fd, POLLIN, 0};
    poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
    close(fd);
  }
  ended_ = waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return ended_;
}

PsExit PsProcess::Exit() const {
  PsExit exit;
  exit.code = WIFEXITED(wait_status_) ? WEXITSTATUS(wait_status_) : -1;
  exit.signal = WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0;
  exit.log = log();
  return exit;
}

PsExit PsProcess::Kill() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &wait_status_, 0);  // a killed process ends: no deadline needed
    ended_ = true;
  }
  return Exit();
}

absl::StatusOr<PsExit> PsProcess::Terminate() {
  if (!ended_) kill(pid_, SIGTERM);
  return Wait();
}

absl::StatusOr<PsExit> PsProcess::Wait() {
  const Deadline deadline = Deadline::In(options_.timeout);
  while (!ExitedWithin(deadline.Remaining())) {
    if (!deadline.Expired()) continue;  // poll was interrupted
    Kill();
    return absl::DeadlineExceededError(absl::StrCat("cairn-ps still ran after ",
                                                    absl::FormatDuration(options_.timeout),
                                                    " and was killed:\n", log()));
  }
  return Exit();
}

}  // namespace cairn
