#include "tests/fuzz/cases.h"

#include <glog/logging.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/deadline.h"
#include "common/descriptor.h"
#include "tests/fuzz/failing_memory.h"
#include "tests/fuzz/player.h"
#include "tests/support/temp_dir.h"

namespace cairn::fuzz {
namespace {

constexpr size_t kTapeNumbers = 4 << 20;
constexpr size_t kTapes = 64 << 10;
constexpr size_t kTextBytes = 8 << 10;
constexpr int64_t kMostCalls = 50;  // of a sequence
constexpr size_t kMostTraced = 4;   // sequences whose calls are printed, the last ones of a round

enum Kind : uint8_t { kStore, kBegin, kCall };

// Data from the process that runs rounds for the process that watches it, in shared memory.
struct Shared {
  std::atomic<int64_t> calls;
  std::atomic<uint64_t> seed;
  std::atomic<uint32_t> tapes;
  uint32_t numbers;
  uint32_t begins[kTapes + 1];
  uint8_t kinds[kTapes];
  uint32_t tape[kTapeNumbers];
  char what[kTextBytes];
  char details[kTextBytes];
  std::atomic<bool> finished;
};

Shared& TheShared() {
  static Shared* const shared = [] {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PCHECK(memory != MAP_FAILED);
    return static_cast<Shared*>(memory);
  }();
  return *shared;
}

void Note(char* to, const std::string& text) {
  const size_t size = std::min(text.size(), kTextBytes - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

// Records the tapes of a round before each call is made, because a call may end the process. The
// numbers that a call draws are known only afterwards, so they are recorded as they are drawn.
class Recorder {
 public:
  void BeginRound(uint64_t seed) {
    Shared& shared = TheShared();
    shared.seed = seed;
    shared.numbers = 0;
    shared.tapes = 0;
  }
  void BeginTape(Kind kind) {
    Shared& shared = TheShared();
    const uint32_t tape = shared.tapes;
    if (tape == kTapes) return;
    shared.begins[tape] = shared.numbers;
    shared.kinds[tape] = kind;
    shared.begins[tape + 1] = shared.numbers;
    shared.tapes = tape + 1;
  }
  static void Number(uint32_t number) {
    Shared& shared = TheShared();
    if (shared.numbers == kTapeNumbers) return;
    shared.tape[shared.numbers++] = number;
    shared.begins[shared.tapes] = shared.numbers;
  }
};

Round Recorded() {
  const Shared& shared = TheShared();
  Round round;
  for (uint32_t t = 0; t < shared.tapes; ++t) {
    Tape tape(shared.tape + shared.begins[t], shared.tape + shared.begins[t + 1]);
    switch (shared.kinds[t]) {
      case kStore: round.store = std::move(tape); break;
      case kBegin: round.sequences.push_back({.begin = std::move(tape)}); break;
      default: round.sequences.back().calls.push_back(std::move(tape)); break;
    }
  }
  return round;
}

EngineOptions StoreOptions(Choices& choices) {
  EngineOptions options;
  options.durability = choices.Of(
      {Durability::kSnapshot, Durability::kOff, Durability::kLog, Durability::kSnapshot});
  options.snapshot_interval = choices.OneIn(4) ? absl::Milliseconds(20) : absl::Hours(1);
  options.memory_budget_bytes = int64_t{512} << 20;
  options.memory_wait = absl::Milliseconds(1);
  options.lease = absl::Hours(1);
  options.row_rules_interval = absl::Hours(1);
  options.logged_snapshot_bytes = choices.OneIn(2) ? 0 : 4096;
  return options;
}

// Runs rounds in this process.
class Runner {
 public:
  Runner(const RunOptions& options, bool trace) : options_(options), trace_(trace) {}

  // False: a finding was recorded. `replayed` null: draws from `random`.
  bool RunRound(Random* random, const Round* replayed) {
    Choices store = replayed == nullptr ? Choices(random) : Choices(replayed->store);
    recorder_.BeginTape(kStore);
    target_ = std::make_unique<Target>(options_.transport);
    if (const std::string failed = target_->Open(StoreOptions(store)); !failed.empty()) {
      return Found({"the server does not start", failed});
    }
    const size_t sequences = replayed == nullptr ? static_cast<size_t>(options_.sequences_per_round)
                                                 : replayed->sequences.size();
    for (size_t s = 0; s < sequences; ++s) {
      const Sequence* const sequence = replayed == nullptr ? nullptr : &replayed->sequences[s];
      if (!RunSequence(random, sequence, trace_ && s + kMostTraced >= sequences)) return false;
      if (!std::exchange(stopped_, false)) continue;
      if (const std::string failed = target_->Open(target_->options()); !failed.empty()) {
        return Found({"the server does not start", failed});
      }
    }
    if (const std::string failed = target_->Restart(); !failed.empty()) {
      return Found({"the server does not start again", failed});
    }
    return true;
  }

 private:
  // False: a finding was recorded.
  bool RunSequence(Random* random, const Sequence* replayed, bool traced) {
    std::function<void(const std::string&)> trace;
    if (traced) {
      std::printf("  a sequence\n");
      trace = [](const std::string& text) {
        std::printf("  %s\n", text.c_str());
        std::fflush(stdout);
      };
    }
    AroundCall around;
    if (options_.failing_allocations) around = FailEachAllocation;
    Player player(*target_, "job", trace, around);
    Choices begin = replayed == nullptr ? Choices(random) : Choices(replayed->begin);
    recorder_.BeginTape(kBegin);
    if (!Checked(player.Begin(begin))) return stopped_;
    const size_t calls =
        replayed == nullptr ? 1 + (*random)() % kMostCalls : replayed->calls.size();
    for (size_t c = 0; c < calls; ++c) {
      Choices choices = replayed == nullptr ? Choices(random) : Choices(replayed->calls[c]);
      recorder_.BeginTape(kCall);
      if (!Checked(player.Step(choices))) return stopped_;
    }
    return Checked(player.End()) || stopped_;
  }

  // False: the sequence ends here; unless stopped_, a finding was recorded.
  bool Checked(const Finding& finding) {
    TheShared().calls += target_->calls() - counted_;
    counted_ = target_->calls();
    if (!finding) return true;
    stopped_ = finding.what == kServerStopped;
    return stopped_ ? false : Found(finding);
  }
  static bool Found(const Finding& finding) {
    Note(TheShared().details, finding.details);
    Note(TheShared().what, finding.what);
    return false;
  }

  const RunOptions options_;
  const bool trace_;
  Recorder recorder_;
  std::unique_ptr<Target> target_;
  int64_t counted_ = 0;
  bool stopped_ = false;  // see kServerStopped: the next sequence has a new server
};

// Runs `body` in a child process and waits for the process, but not for a call that does not end.
// Returns how the process ended, or what it recorded.
Report InProcess(const RunOptions& options, bool quiet, const std::function<void()>& body) {
  Shared& shared = TheShared();
  shared.calls = 0;
  shared.tapes = 0;
  shared.numbers = 0;
  shared.what[0] = shared.details[0] = '\0';
  shared.finished = false;
  const TempDir folder;  // for stores; the process may end without removing them
  std::fflush(nullptr);
  const pid_t child = fork();
  PCHECK(child >= 0);
  if (child == 0) {
    setenv("TMPDIR", folder.path().c_str(), 1);
    if (quiet) {
      (void)!std::freopen("/dev/null", "w", stderr);
      (void)!std::freopen("/dev/null", "w", stdout);
    }
    body();
    shared.finished = true;
    std::fflush(nullptr);
    std::_Exit(0);
  }
  // Readable once the child has ended.
  const Descriptor child_fd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  pollfd ended_or_not = {child_fd.get(), POLLIN, 0};
  Report report;
  int status = 0;
  uint64_t progress = 0;
  Deadline late = Deadline::In(options.call_deadline);
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    const uint64_t now = static_cast<uint64_t>(shared.calls) + shared.tapes;
    if (now != progress) {
      progress = now;
      late = Deadline::In(options.call_deadline);
    }
    if (late.Expired()) {
      report.what = "a call does not end";
      kill(child, SIGABRT);
      waitpid(child, &status, 0);
      break;
    }
    poll(&ended_or_not, 1, 2);
  }
  report.calls = shared.calls;
  report.seed = shared.seed;
  report.round = Recorded();
  if (report.what.empty()) {
    report.what = shared.what;
    report.details = shared.details;
  }
  if (report.what.empty() && WIFSIGNALED(status)) {
    report.what = absl::StrCat("the server was ended by signal ", WTERMSIG(status), " (",
                               strsignal(WTERMSIG(status)), ")");
  }
  if (report.what.empty() && (WEXITSTATUS(status) != 0 || !shared.finished)) {
    report.what = absl::StrCat("the server ended with status ", WEXITSTATUS(status));
  }
  return report;
}

// Checks whether a smaller round has the same finding; if so, keeps it.
class Shrinker {
 public:
  Shrinker(const RunOptions& options, std::string what, Round best, absl::Duration duration)
      : options_(options),
        what_(std::move(what)),
        best_(std::move(best)),
        end_(Deadline::In(duration)) {}

  Round Run() {
    if (best_.sequences.empty() || !Keeps(best_)) return best_;
    DropSequences();
    for (size_t before = 0; before != Size() && !end_.Expired();) {
      before = Size();
      DropCalls();
      Simplify();
    }
    return best_;
  }

 private:
  size_t Size() const {
    size_t size = 0;
    for (const Sequence& sequence : best_.sequences) {
      for (const Tape& call : sequence.calls) size += 1 + Weight(call);
      size += Weight(sequence.begin);
    }
    return size;
  }
  static size_t Weight(const Tape& tape) {
    return static_cast<size_t>(
        std::count_if(tape.begin(), tape.end(), [](uint32_t number) { return number != 0; }));
  }
  bool Keeps(const Round& round) {
    if (end_.Expired()) return false;
    return InProcess(options_, /*quiet=*/true, [&] {
             Runner(options_, /*trace=*/false).RunRound(nullptr, &round);
           }).what == what_;
  }
  bool Try(Round round) {
    if (!Keeps(round)) return false;
    best_ = std::move(round);
    return true;
  }
  void DropSequences() {
    Round last = best_;
    last.sequences = {best_.sequences.back()};
    if (Try(last)) return;
    for (size_t size = best_.sequences.size() / 2; size > 0; size /= 2) {
      for (size_t first = 0; first + size < best_.sequences.size();) {
        Round fewer = best_;
        const auto at = fewer.sequences.begin() + static_cast<ptrdiff_t>(first);
        fewer.sequences.erase(at, at + static_cast<ptrdiff_t>(size));
        if (!Try(std::move(fewer))) first += size;
      }
    }
  }
  void DropCalls() {
    for (size_t s = best_.sequences.size(); s-- > 0;) {
      for (size_t size = std::max<size_t>(best_.sequences[s].calls.size() / 2, 1); size > 0;
           size /= 2) {
        for (size_t first = 0; first + size <= best_.sequences[s].calls.size();) {
          Round fewer = best_;
          auto& calls = fewer.sequences[s].calls;
          const auto at = calls.begin() + static_cast<ptrdiff_t>(first);
          calls.erase(at, at + static_cast<ptrdiff_t>(size));
          if (!Try(std::move(fewer))) first += size;
        }
      }
    }
  }
  // Tries fewer and smaller numbers.
  void Simplify() {
    if (Weight(best_.store) > 0) {
      Round simpler = best_;
      simpler.store.clear();
      Try(std::move(simpler));
    }
    for (size_t s = 0; s < best_.sequences.size(); ++s) {
      SimplifyTape([s](Round& round) -> Tape& { return round.sequences[s].begin; });
      for (size_t c = 0; c < best_.sequences[s].calls.size(); ++c) {
        SimplifyTape([s, c](Round& round) -> Tape& { return round.sequences[s].calls[c]; });
      }
    }
  }
  void SimplifyTape(const std::function<Tape&(Round&)>& of) {
    for (size_t keep = of(best_).size() / 2; keep > 0; keep /= 2) {
      Round simpler = best_;
      Tape& tape = of(simpler);
      tape.resize(tape.size() - keep);
      Try(std::move(simpler));
    }
    for (size_t i = 0; i < of(best_).size(); ++i) {
      const uint32_t number = of(best_)[i];
      for (const uint32_t less : {uint32_t{0}, number / 2, number - 1}) {
        if (number == 0 || less >= number) break;
        Round simpler = best_;
        of(simpler)[i] = less;
        if (Try(std::move(simpler))) break;
      }
    }
  }

  const RunOptions options_;
  const std::string what_;
  Round best_;
  const Deadline end_;
};

}  // namespace

void NoteTaken(uint32_t number) { Recorder::Number(number); }

Report RunRounds(const RunOptions& options, uint64_t seed, int64_t calls, absl::Duration duration) {
  const Deadline end = Deadline::In(duration);
  return InProcess(options, /*quiet=*/false, [&] {
    Recorder recorder;
    for (uint64_t s = seed; TheShared().calls < calls && !end.Expired(); ++s) {
      recorder.BeginRound(s);
      Random random(s);
      if (!Runner(options, /*trace=*/false).RunRound(&random, nullptr)) return;
    }
  });
}

Report RunRound(const RunOptions& options, const Round& round, bool trace) {
  return InProcess(options, /*quiet=*/false,
                   [&] { Runner(options, trace).RunRound(nullptr, &round); });
}

Round Shrink(const RunOptions& options, const Report& report, absl::Duration duration) {
  return Shrinker(options, report.what, report.round, duration).Run();
}

}  // namespace cairn::fuzz
