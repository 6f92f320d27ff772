#include "worker/ctl/launch_task.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/status.h"
#include "common/write_all.h"

namespace cairn {
namespace {

// The launch continues even if its stderr is closed.
void Show(absl::string_view text) { (void)WriteAll(STDERR_FILENO, text); }

}  // namespace

// The task continues even if its log cannot be written.
void LaunchTask::Log(absl::string_view text) {
  if (text.empty() || log_failed_ || plan_.log_file.empty()) return;
  if (log_.get() < 0) {
    log_.Reset(open(plan_.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  if (log_.get() >= 0 && WriteAll(log_.get(), text)) return;
  log_failed_ = true;
  Say(absl::StrCat("cannot write the log of ", plan_.task, ", ", plan_.log_file, ": ",
                   absl::ErrnoToStatus(errno, "").message()));
}

// Leaves out the flags that an earlier start has applied: a restarted worker resumes by itself.
std::vector<std::string> LaunchTask::StartCommand() const {
  std::vector<std::string> command = plan_.command;
  std::ifstream applied(plan_.applied_flags_file);
  for (std::string flag; std::getline(applied, flag);) {
    std::erase_if(command, [&](absl::string_view word) {
      return word == flag || absl::StartsWith(word, absl::StrCat(flag, "="));
    });
  }
  return command;
}

absl::Status LaunchTask::Start() {
  std::error_code error;
  // A port file of an earlier start would make the server look ready.
  if (!plan_.port_file.empty()) std::filesystem::remove(plan_.port_file, error);
  out_.clear();
  report_.clear();
  waits_ = false;
  const std::vector<std::string> command = StartCommand();
  started_ = true;
  begin_ = MonotonicNow();
  // When the launcher is gone, a server writes its state and ends. A worker is killed, because it
  // would wait for its servers to make durable what they make durable by themselves.
  const absl::Status status =
      process_.Start(command, server() ? SIGTERM : SIGKILL, plan_.environment);
  return status.ok() ? status : Annotate(status, plan_.task);
}

bool LaunchTask::ready() const {
  if (!process_.running()) return false;
  std::error_code error;
  return plan_.port_file.empty() || std::filesystem::exists(plan_.port_file, error);
}

void LaunchTask::Say(const std::string& text) {
  Log(absl::StrCat(text, "\n"));
  const std::string padding(name_width_ - std::min(name_width_, plan_.task.size()), ' ');
  Show(absl::StrCat(plan_.task, padding, " | ", text, "\n"));
}

void LaunchTask::TakeReport(absl::string_view chunk) {
  absl::StrAppend(&out_, chunk);
  size_t end = 0;
  while ((end = out_.find('\n')) != std::string::npos) {
    // Earlier lines of stdout are not the report; they are shown to people.
    if (!report_.empty()) Show(out_prefix_.Feed(absl::StrCat(report_, "\n")));
    report_ = out_.substr(0, end);
    out_.erase(0, end + 1);
  }
  if (out_.size() > LinePrefix::kMaxLineBytes) {
    Show(out_prefix_.Feed(out_));
    out_.clear();
  }
}

void LaunchTask::Forward() {
  std::string err;
  process_.Read(ChildProcess::kErr, &err);
  Log(err);
  Show(prefix_.Feed(err));
  std::string out;
  process_.Read(ChildProcess::kOut, &out);
  Log(out);
  if (!out.empty()) TakeReport(out);
}

void LaunchTask::Ended(const Ending& ending) {
  ending_ = ending;
  ran_ = MonotonicNow() - begin_;
  // After the process has ended, the pipes hold at most their capacity, unless a child of the
  // process still writes. The limit covers that case.
  constexpr int kMostReads = 64;
  for (int i = 0; i < kMostReads; ++i) {
    const bool open =
        process_.file(ChildProcess::kErr) >= 0 || process_.file(ChildProcess::kOut) >= 0;
    if (!open) break;
    Forward();
  }
  Show(prefix_.End());
}

}  // namespace cairn
