// Feeds generated and mutated inputs to readers of files and requests; the same inputs for the same
// seed.
//
//   file_fuzz --target=job                         as run by `meson test`
//   file_fuzz --target=job --seed=7 --runs=1000000 a long run
//   file_fuzz --target=job --input=FILE            one input
//   file_fuzz --list                               the targets
//
// A reader must return a result or an error that names the source. A crash, an exception, a read
// that takes more than ten seconds, memory beyond 1 GiB, and a bad message are findings: the input
// is written to a file that --input reads. AddressSanitizer finds leaks.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/printable_text.h"
#include "glog/logging.h"
#include "tests/file_fuzz/target.h"
#include "tests/support/file_text.h"

ABSL_FLAG(std::string, target, "", "which reader");
ABSL_FLAG(int64_t, seed, 0, "0: three fixed seeds and a fresh one");
ABSL_FLAG(int64_t, first, 0, "the first run of the seed");
ABSL_FLAG(int64_t, runs, 0, "of each seed; 0: the target's own");
ABSL_FLAG(std::string, input, "", "a file with the only input");
ABSL_FLAG(bool, list, false, "names the targets");

namespace cairn::test {
namespace {

constexpr int kSecondsOfARead = 10;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers' own handlers report crashes
constexpr int64_t kMostKilobytes = 4 << 20;
#else
constexpr bool kSanitized = false;
constexpr int64_t kMostKilobytes = 1 << 20;
#endif

// The current input, kept so that it can be written when the process crashes.
class Watched {
 public:
  Watched() : path_(absl::StrCat("file_fuzz-", ::getpid(), ".input")) {
    const char* folder = std::getenv("TMPDIR");
    path_ = absl::StrCat(folder == nullptr ? "/tmp" : folder, "/", path_);
    watchdog_ = std::thread([this] { Watch(); });
  }
  ~Watched() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    watchdog_.join();
  }
  void Begin(const std::string& input, std::string how) {
    const std::lock_guard lock(mutex_);
    input_ = &input;
    how_ = std::move(how);
    ++number_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    input_ = nullptr;
  }
  // Not async-signal-safe, but the process ends immediately afterwards.
  void Report(const char* what) {
    if (input_ == nullptr) return;
    std::ofstream(path_, std::ios::binary) << *input_;
    std::fprintf(stderr, "FINDING %s\n  %s\n  the input of %zu bytes: %s\n", what, how_.c_str(),
                 input_->size(), path_.c_str());
  }

 private:
  void Watch() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      const int64_t before = number_;
      changed_.wait_for(lock, std::chrono::seconds(kSecondsOfARead), [this] { return over_; });
      if (!over_ && input_ != nullptr && number_ == before) {
        Report("a read takes more than ten seconds");
        std::_Exit(1);
      }
    }
  }

  std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::string* input_ = nullptr;
  std::string how_;
  int64_t number_ = 0;
  bool over_ = false;
  std::thread watchdog_;
};

Watched* watched = nullptr;

void OnCrash(int signal) {
  if (watched != nullptr) watched->Report(strsignal(signal));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int64_t PeakKilobytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

bool RunOne(FuzzTarget& target, const std::string& input, const std::string& how) {
  watched->Begin(input, how);
  std::string wrong;
  try {
    wrong = target.Try(input);
  } catch (const std::exception& error) {
    wrong = absl::StrCat("an exception: ", error.what());
  }
  if (wrong.empty() && PeakKilobytes() > kMostKilobytes) {
    wrong = absl::StrCat("memory grew to ", PeakKilobytes(), " KiB");
  }
  if (!wrong.empty()) watched->Report(wrong.c_str());
  watched->End();
  return wrong.empty();
}

bool RunSeed(const NamedTarget& named, int64_t seed, int64_t runs) {
  const std::unique_ptr<FuzzTarget> target = named.make();
  const int64_t first = absl::GetFlag(FLAGS_first);
  if (runs == 0) runs = target->runs_of_a_test();
  const auto start = std::chrono::steady_clock::now();
  for (int64_t run = first; run < first + runs; ++run) {
    Dice dice(static_cast<uint64_t>(seed) * 1000003 + static_cast<uint64_t>(run));
    const std::string input = target->Make(dice);
    if (!RunOne(*target, input,
                absl::StrCat("file_fuzz --target=", named.name, " --seed=", seed, " --first=", run,
                             " --runs=1"))) {
      return false;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%s: seed %lld, %lld inputs in %.1f s\n", named.name, static_cast<long long>(seed),
              static_cast<long long>(runs), took.count());
  std::fflush(stdout);
  return true;
}

std::vector<NamedTarget> AllTargets() {
  std::vector<NamedTarget> all;
  for (const auto& some :
       {ConfigTargets(), InputTargets(), StorageTargets(), TrainerTargets(), HttpTargets()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

int Run(const NamedTarget& named) {
  Watched watching;
  watched = &watching;
  if (kSanitized) {
    std::signal(SIGABRT, OnCrash);
  } else {
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) {
      std::signal(signal, OnCrash);
    }
  }
  bool good = true;
  if (const std::string path = absl::GetFlag(FLAGS_input); !path.empty()) {
    good = RunOne(*named.make(), FileText(path), path);
  } else if (const int64_t seed = absl::GetFlag(FLAGS_seed); seed != 0) {
    good = RunSeed(named, seed, absl::GetFlag(FLAGS_runs));
  } else {
    const auto fresh = static_cast<int64_t>(std::random_device()());
    for (const int64_t each : {int64_t{1}, int64_t{2}, int64_t{3}, fresh}) {
      good = good && RunSeed(named, each, absl::GetFlag(FLAGS_runs));
    }
  }
  watched = nullptr;
  return good ? 0 : 1;
}

int Main() {
  for (const NamedTarget& named : AllTargets()) {
    if (absl::GetFlag(FLAGS_list)) std::printf("%s\n", named.name);
    if (absl::GetFlag(FLAGS_target) == named.name) return Run(named);
  }
  if (absl::GetFlag(FLAGS_list)) return 0;
  std::fprintf(stderr, "no target '%s': --list names them\n", absl::GetFlag(FLAGS_target).c_str());
  return 2;
}

}  // namespace

std::string WrongWithMessage(const std::string& message, const std::string& source) {
  if (message.find(source) == std::string::npos) {
    return absl::StrCat("the message does not name ", source, ": ", message);
  }
  if (message.size() > 4000) return absl::StrCat("the message has ", message.size(), " bytes");
  const std::string control =
      FirstControlOf(absl::StrReplaceAll(message, {{"\n", ""}, {"\t", ""}}));
  if (control.empty()) return "";
  return absl::StrCat("the message has control character ", control, ": ", message);
}

}  // namespace cairn::test

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  FLAGS_minloglevel = google::GLOG_FATAL;
  google::InitGoogleLogging(argv[0]);
  return cairn::test::Main();
}
