#include "worker/ctl/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace cairn {
namespace {

struct Pipe {
  absl::Status Open() {
    int files[2];
    if (pipe2(files, O_CLOEXEC) != 0) {
      return absl::ErrnoToStatus(errno, "making a pipe for a process's output");
    }
    read.Reset(files[0]);
    write.Reset(files[1]);
    return absl::OkStatus();
  }

  Descriptor read;
  Descriptor write;
};

struct ChildSetup {
  int out;
  int err;
  int failure;  // gets errno if the program cannot be started
  pid_t parent;
  int orphan_signal;
};

// Runs in the child between fork and exec, where only system calls are allowed.
[[noreturn]] void Become(char* const* arguments, char* const* environment,
                         const ChildSetup& setup) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, setup.orphan_signal);
  if (getppid() != setup.parent) _exit(1);  // the parent ended before PR_SET_PDEATHSIG took effect
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(setup.out, STDOUT_FILENO);
  dup2(setup.err, STDERR_FILENO);
  execve(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = write(setup.failure, &error, sizeof error);
  _exit(127);
}

// Pointers to the strings and a null, as exec takes them; exec does not write.
std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment, with the variables of `own` added or replaced.
std::vector<std::string> WithOwnEnvironment(const std::vector<std::string>& own) {
  const auto name = [](absl::string_view variable) {
    return variable.substr(0, variable.find('='));
  };
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool replaced = std::ranges::any_of(
        own, [&](const std::string& variable) { return name(variable) == name(*entry); });
    if (!replaced) all.emplace_back(*entry);
  }
  return all;
}

}  // namespace

std::string Ending::Text() const {
  if (signal != 0) {
    return absl::StrCat("was ended by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("ended with status ", code);
}

ChildProcess::~ChildProcess() {
  if (running()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

absl::Status ChildProcess::Start(const std::vector<std::string>& command, int orphan_signal,
                                 const std::vector<std::string>& environment) {
  for (Descriptor& file : files_) file.Reset();
  Pipe out;
  Pipe err;
  Pipe failure;
  for (Pipe* pipe : {&out, &err, &failure}) RETURN_IF_ERROR(pipe->Open());
  const std::vector<std::string> variables = WithOwnEnvironment(environment);
  const std::vector<char*> arguments = Pointers(command), pointers = Pointers(variables);
  const ChildSetup setup{out.write.get(), err.write.get(), failure.write.get(), getpid(),
                         orphan_signal};
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, absl::StrCat("starting ", command[0]));
  if (pid == 0) Become(arguments.data(), pointers.data(), setup);
  failure.write.Reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(failure.read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error)) {
    waitpid(pid, nullptr, 0);
    return absl::ErrnoToStatus(error, absl::StrCat("starting ", command[0]));
  }
  pid_ = pid;
  files_[kOut].Reset(out.read.Release());
  files_[kErr].Reset(err.read.Release());
  for (const Descriptor& file : files_) fcntl(file.get(), F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

void ChildProcess::Signal(int signal) const {
  if (running()) kill(pid_, signal);
}

bool ChildProcess::Reap(Ending* ending) {
  if (!running()) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = -1;
  *ending = Ending{};
  if (WIFSIGNALED(status)) {
    ending->signal = WTERMSIG(status);
  } else {
    ending->code = WEXITSTATUS(status);
  }
  return true;
}

void ChildProcess::Read(Stream stream, std::string* out) {
  Descriptor& file = files_[stream];
  if (file.get() < 0) return;
  std::array<char, 1 << 16> chunk;
  const ssize_t got = read(file.get(), chunk.data(), chunk.size());
  if (got > 0) {
    out->append(chunk.data(), static_cast<size_t>(got));
    return;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  file.Reset();
}

}  // namespace cairn
