#include "worker/ctl/background.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "common/write_all.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

void LeaveTerminal() {
  setsid();
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, file);
  close(null);
}

std::string ReadToEnd(int file) {
  std::string text;
  char bytes[4096];
  for (;;) {
    const ssize_t got = read(file, bytes, sizeof bytes);
    if (got > 0) text.append(bytes, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

// Ends this process as the child ended, which has already printed why.
[[noreturn]] void EndAs(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

absl::StatusOr<Answer> InBackground(
    const std::function<absl::StatusOr<Answer>(const ReadyCall& ready)>& work) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "making a pipe");
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "starting the background process");
  if (child == 0) {
    // Until it is ready, the child ends with the command that the user started.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);  // the parent ended before PR_SET_PDEATHSIG took effect
    close(pipe_ends[0]);
    const auto ready = [file = pipe_ends[1]](const Answer& answer) {
      prctl(PR_SET_PDEATHSIG, 0);
      const Json json = {{"json", answer.json}, {"text", answer.text}};
      (void)WriteAll(file, json.dump(-1, ' ', false, Json::error_handler_t::replace));
      close(file);
      LeaveTerminal();
    };
    return work(ready);
  }
  close(pipe_ends[1]);
  // Ctrl-C also reaches the child, which ends its tasks; this process only waits for the child.
  std::signal(SIGINT, SIG_IGN);
  const Json told = Json::parse(ReadToEnd(pipe_ends[0]), nullptr, /*allow_exceptions=*/false);
  close(pipe_ends[0]);
  if (!told.is_object()) EndAs(child);
  return Answer{.json = told["json"], .text = told["text"].get<std::string>()};
}

}  // namespace cairn
