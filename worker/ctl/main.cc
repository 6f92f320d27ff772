// cairnctl: runs, watches and repairs jobs.
#include <glog/logging.h>

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/config/cli.h"
#include "common/config/local_path.h"
#include "common/exit_status.h"
#include "common/log.h"
#include "common/process_start.h"
#include "common/status.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/command_tree.h"

namespace cairn {
namespace {

std::string MessageOf(const absl::Status& status) {
  const std::string text = absl::StrReplaceAll(std::string(status.message()), {{"\n", "; "}});
  return text.empty() ? std::string(CodeName(status.code())) : text;
}

// Prints the error on one line, the last of stderr; with --json also as the object on stdout.
int Fail(const Invocation& invocation, const absl::Status& status) {
  if (invocation.json) {
    const nlohmann::ordered_json json = {{"error", MessageOf(status)},
                                         {"code", std::string(CodeName(status.code()))}};
    std::fputs(JsonLine(json).c_str(), stdout);
  }
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", invocation.name.c_str(), MessageOf(status).c_str());
  return ExitCodeOf(status);
}

int Print(const Invocation& invocation, const Answer& answer) {
  const std::string text = invocation.json ? JsonLine(answer.json) : answer.text;
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    return Fail({.name = invocation.name}, absl::InternalError("stdout cannot be written"));
  }
  int exit_status = answer.exit_status;
  if (!answer.problem.ok()) {
    std::fprintf(stderr, "%s: %s\n", invocation.name.c_str(), MessageOf(answer.problem).c_str());
    if (exit_status == 0) exit_status = ExitCodeOf(answer.problem);
  }
  return exit_status;
}

// No flag and no file name is a URL; the keys of `get` may be any text.
absl::Status CheckPaths(absl::Span<const char* const> words) {
  const bool has_keys = !words.empty() && absl::string_view(words[0]) == "get";
  for (const absl::string_view word : words) {
    const size_t equals = absl::StartsWith(word, "--") ? word.find('=') : word.npos;
    if (equals != word.npos) {
      RETURN_IF_ERROR(
          CheckLocalPath(absl::StrCat("flag ", word.substr(0, equals)), word.substr(equals + 1)));
    } else if (!has_keys) {
      RETURN_IF_ERROR(CheckLocalPath("command line", word));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  PrepareProcess("cairnctl");
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  FLAGS_logtostderr = true;
  // Hides the log messages of the worker's library, which the user did not ask for.
  FLAGS_minloglevel = google::GLOG_ERROR;
  google::InitGoogleLogging(argv[0]);
  cairn::LogToGlog();
  Invocation invocation;
  const auto words = absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0));
  absl::Status read = ReadInvocation(words, &invocation);
  if (const absl::Status paths = CheckPaths(words); !paths.ok()) read = paths;
  if (!read.ok()) return Fail(invocation, AsBadInput(read));
  if (!invocation.help.empty()) return PrintText(invocation.help);
  const absl::StatusOr<Answer> answer = invocation.run();
  return answer.ok() ? Print(invocation, *answer) : Fail(invocation, answer.status());
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
