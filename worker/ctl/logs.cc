#include "worker/ctl/cluster_commands.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/descriptor.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/status.h"
#include "common/write_all.h"
#include "worker/ctl/launch_record.h"
#include "worker/ctl/line_prefix.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr absl::Duration kLogPollInterval = absl::Milliseconds(200);
constexpr size_t kChunkBytes = 64 << 10;

std::string LastLines(const std::string& text, int64_t count) {
  if (count == 0 || text.empty()) return "";
  // A final line end belongs to the last line.
  size_t begin = text.back() == '\n' ? text.size() - 1 : text.size();
  for (int64_t i = 0; i < count; ++i) {
    const size_t line_end = begin == 0 ? std::string::npos : text.rfind('\n', begin - 1);
    if (line_end == std::string::npos) return text;
    begin = line_end;
  }
  return text.substr(begin + 1);
}

// One task's log, read from its end.
class TaskLog {
 public:
  TaskLog(std::string task, std::string path) : task_(std::move(task)), path_(std::move(path)) {}

  const std::string& task() const { return task_; }
  const std::string& path() const { return path_; }

  absl::Status Open() {
    file_.Reset(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file_.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path_));
    struct stat found = {};
    if (fstat(file_.get(), &found) != 0 || !S_ISREG(found.st_mode)) {
      return InvalidArgument(path_, " is not a regular file");
    }
    return absl::OkStatus();
  }

  // Returns the last `count` lines; the next read begins after them.
  std::string Tail(int64_t count) {
    const off_t end = lseek(file_.get(), 0, SEEK_END);
    off_t begin = end;
    std::string text;
    while (begin > 0 && std::ranges::count(text, '\n') <= count) {
      const off_t step = std::min<off_t>(begin, kChunkBytes);
      begin -= step;
      text.insert(0, ReadAt(begin, static_cast<size_t>(step)));
    }
    at_ = end;
    return LastLines(text, count);
  }

  // Returns the text written since the last read.
  std::string More() {
    std::string text = ReadAt(at_, kChunkBytes);
    at_ += static_cast<off_t>(text.size());
    return text;
  }

 private:
  std::string ReadAt(off_t at, size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t got = pread(file_.get(), text.data(), bytes, at);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
  }

  const std::string task_;
  const std::string path_;
  Descriptor file_;
  off_t at_ = 0;
};

// The tasks with logs in `directory`, "worker:0" for worker-0.log; servers, then workers, by index.
std::vector<std::string> TasksIn(const std::string& directory) {
  std::vector<std::string> tasks;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    absl::string_view name = file;
    const size_t dash = name.rfind('-');
    if (!absl::ConsumeSuffix(&name, ".log")) continue;
    // "launch.log" is the launch's own log.
    tasks.push_back(dash == name.npos
                        ? std::string(name)
                        : absl::StrCat(name.substr(0, dash), ":", name.substr(dash + 1)));
  }
  std::ranges::sort(tasks, [](const std::string& a, const std::string& b) {
    return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);
  });
  return tasks;
}

using Logs = std::vector<std::unique_ptr<TaskLog>>;

absl::StatusOr<Logs> OpenLogs(const LogsOptions& options, const std::string& directory) {
  const std::vector<std::string> all = TasksIn(directory);
  Logs logs;
  for (const std::string& task : options.tasks.empty() ? all : options.tasks) {
    if (std::ranges::find(all, task) == all.end()) {
      return NotFound("no task '", task, "' has a log in ", directory, "; there are ",
                      absl::StrJoin(all, ", "));
    }
    logs.push_back(std::make_unique<TaskLog>(task, TaskLogPath(directory, task)));
    RETURN_IF_ERROR(logs.back()->Open());
  }
  if (logs.empty()) {
    return NotFound(directory,
                    " has no logs of a launch: cairnctl launch --log_directory DIR writes them");
  }
  return logs;
}

// Prefixes each task's lines with its name, padded to the longest name, in a color of its own.
struct Prefixes {
  void Add(const std::string& task) {
    all.emplace_back(task, width, colors ? static_cast<int>(all.size()) : -1);
  }

  size_t width = 0;
  const bool colors = ShowsColors(STDOUT_FILENO);
  std::vector<LinePrefix> all;  // by log
};

// Adds the logs that tasks have begun since the last look: a task's log begins with its first
// output.
void AddNew(const std::string& directory, Logs& logs, Prefixes& prefixes) {
  for (const std::string& task : TasksIn(directory)) {
    const bool known =
        std::any_of(logs.begin(), logs.end(), [&](const auto& log) { return log->task() == task; });
    if (known) continue;
    auto log = std::make_unique<TaskLog>(task, TaskLogPath(directory, task));
    if (!log->Open().ok()) continue;  // the next look tries again
    logs.push_back(std::move(log));
    prefixes.Add(task);
  }
}

// Prints new lines until the launch, if it is known, has ended and its logs are read to the end.
// `add_new`: also of tasks without a log so far.
void Follow(const std::string& directory, bool add_new, Logs& logs, Prefixes& prefixes,
            const std::optional<LaunchRecord>& launch) {
  for (;;) {
    const bool ended = launch.has_value() && !IsRunning(*launch);
    if (add_new) AddNew(directory, logs, prefixes);
    bool any = false;
    for (size_t i = 0; i < logs.size(); ++i) {
      const std::string text = logs[i]->More();
      any = any || !text.empty();
      if (!WriteAll(STDOUT_FILENO, prefixes.all[i].Feed(text))) return;
    }
    if (any) continue;
    if (ended) break;
    absl::SleepFor(kLogPollInterval);
  }
  for (LinePrefix& prefix : prefixes.all) {
    if (!WriteAll(STDOUT_FILENO, prefix.End())) return;
  }
}

}  // namespace

absl::StatusOr<Answer> RunLogs(const LogsOptions& options, bool json) {
  if (options.lines < 0 || (json && options.follow)) {
    return AsBadInput(absl::InvalidArgumentError(
        json ? "--follow prints lines as they come, and --json one object: give one of them"
             : "--lines is a number of at least 0"));
  }
  std::string directory = options.directory;
  std::optional<LaunchRecord> launch;
  if (directory.empty()) {
    ASSIGN_OR_RETURN(launch, FindLaunch(options.launch));
    directory = launch->log_directory;
  }
  ASSIGN_OR_RETURN(Logs logs, AsBadInput(OpenLogs(options, directory)));
  Prefixes prefixes;
  for (const auto& log : logs) prefixes.width = std::max(prefixes.width, log->task().size());
  Answer answer;
  Json list = Json::array();
  for (const auto& log : logs) {
    prefixes.Add(log->task());
    const std::string text = log->Tail(options.lines);
    std::vector<std::string> lines =
        absl::StrSplit(absl::StripSuffix(text, "\n"), '\n', absl::SkipEmpty());
    list.push_back({{"task", log->task()}, {"file", log->path()}, {"lines", std::move(lines)}});
    absl::StrAppend(&answer.text, prefixes.all.back().Feed(text));
    if (!options.follow) absl::StrAppend(&answer.text, prefixes.all.back().End());
  }
  answer.json = {{"log_directory", directory}, {"tasks", std::move(list)}};
  if (!options.follow) return answer;
  if (!WriteAll(STDOUT_FILENO, answer.text)) return Answer{};
  Follow(directory, options.tasks.empty(), logs, prefixes, launch);
  return Answer{};
}

}  // namespace cairn
