#include "worker/collective/in_process_rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

// A waiting rank first polls, for as long as a cache line takes to arrive if every rank has its own
// core. Then it yields the core to the other ranks, which takes about a microsecond each time. Then
// it sleeps, at no cost until it is woken.
constexpr int kSpinsWithOwnCore = 1000;
constexpr int kYields = 64;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

InProcessRendezvous::InProcessRendezvous(std::vector<std::string> devices, std::string name)
    : devices_(std::move(devices)),
      name_(std::move(name)),
      spins_(devices_.size() <= std::thread::hardware_concurrency() ? kSpinsWithOwnCore : 0),
      slots_(devices_.size()) {}

template <typename Done>
bool InProcessRendezvous::WaitFor(Done done, Deadline deadline) {
  for (int i = 0; i < spins_; ++i) {
    if (done()) return true;
    Pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (done()) return true;
    ::sched_yield();
  }
  absl::MutexLock lock(&mutex_);
  // Incremented before the condition is checked; a rank that changes the condition reads the count
  // afterwards.
  sleepers_.fetch_add(1);
  bool is_done = done();
  while (!is_done && !deadline.Expired()) {
    changed_.WaitUntil(&mutex_, deadline);
    is_done = done();
  }
  sleepers_.fetch_sub(1);
  return is_done;
}

void InProcessRendezvous::Wake() {
  if (sleepers_.load() == 0) return;
  absl::MutexLock lock(&mutex_);
  changed_.SignalAll();
}

InProcessRendezvous::Part& InProcessRendezvous::Begin(int rank, uint64_t number) {
  Slot& slot = slots_[static_cast<size_t>(rank)];
  slot.inside.store(number);
  return slot.parts[number & 1];
}

void InProcessRendezvous::End(int rank) {
  slots_[static_cast<size_t>(rank)].inside.store(0, std::memory_order_release);
}

bool InProcessRendezvous::Arrive(int rank, uint64_t number) {
  slots_[static_cast<size_t>(rank)].came.store(number, std::memory_order_relaxed);
  uint64_t now = turn_.load();
  do {
    if (now / kTurn != number) return false;
  } while (!turn_.compare_exchange_weak(now, now + 1));
  if ((now + 1) % kTurn < devices_.size()) return true;
  // All ranks have arrived, so no other rank writes these, and none can close the call as failed.
  next_block_.store(0, std::memory_order_relaxed);
  pieces_done_.store(0, std::memory_order_relaxed);
  completed_.store(number, std::memory_order_relaxed);
  turn_.store((number + 1) * kTurn);
  Wake();
  return true;
}

absl::Status InProcessRendezvous::Meet(int rank, uint64_t number, Deadline deadline) {
  const auto closed = [&] { return turn_.load() / kTurn > number; };
  if (is_aborted_.load()) return Failure(rank, number);
  if (!Arrive(rank, number)) return Failure(rank, number);
  const absl::Duration allowed = closed() ? absl::ZeroDuration() : deadline.Remaining();
  if (!WaitFor([&] { return closed() || is_aborted_.load(); }, deadline)) {
    Fail(number, absl::StatusCode::kDeadlineExceeded,
         absl::StrCat(MissingText(number), " within ", absl::FormatDuration(allowed)));
  } else if (!closed()) {
    Fail(number, absl::StatusCode::kAborted, "");
  }
  // The call is still open only if the last rank has arrived and is about to open the next call.
  while (!closed()) ::sched_yield();
  return completed_.load() == number ? absl::OkStatus() : Failure(rank, number);
}

void InProcessRendezvous::Fail(uint64_t number, absl::StatusCode code, const std::string& why) {
  // The next call but one overwrites the parts of the previous call, so wait until its readers have
  // left. They wait only for each other's copying.
  for (Slot& slot : slots_) {
    for (uint64_t in = slot.inside.load(); in != 0 && in < number; in = slot.inside.load()) {
      ::sched_yield();
    }
  }
  absl::MutexLock lock(&mutex_);
  uint64_t now = turn_.load();
  do {
    const bool all_came = now % kTurn == devices_.size();
    if (now / kTurn != number || all_came) return;
  } while (!turn_.compare_exchange_weak(now, (number + 1) * kTurn));
  last_failure_ = code == absl::StatusCode::kAborted ? aborted_ : absl::Status(code, why);
  changed_.SignalAll();
}

std::string InProcessRendezvous::MissingText(uint64_t number) const {
  std::vector<std::string> missing;
  for (size_t r = 0; r < slots_.size(); ++r) {
    if (slots_[r].came.load(std::memory_order_relaxed) >= number) continue;
    missing.push_back(RankText(static_cast<int>(r), devices_[r]));
  }
  if (missing.empty()) return "the last rank did not come";
  return absl::StrCat(absl::StrJoin(missing, ", "), " did not come");
}

absl::Status InProcessRendezvous::Failure(int rank, uint64_t number) const {
  const absl::string_view device = devices_[static_cast<size_t>(rank)];
  const CollectiveKind kind = part(rank, number).call.kind;
  absl::MutexLock lock(&mutex_);
  const absl::Status& cause = aborted_.ok() ? last_failure_ : aborted_;
  return absl::Status(cause.code(), absl::StrCat(CallerText(kind, number, rank, device),
                                                 " of group '", name_, "': ", cause.message()));
}

absl::Status InProcessRendezvous::Agreement(uint64_t number) const {
  bool agrees = true;
  const CollectiveCall& first = slots_[0].parts[number & 1].call;
  for (const Slot& slot : slots_) agrees = agrees && Agrees(first, slot.parts[number & 1].call);
  if (agrees) return absl::OkStatus();
  std::vector<CollectiveCall> calls;
  calls.reserve(slots_.size());
  for (const Slot& slot : slots_) calls.push_back(slot.parts[number & 1].call);
  return CheckAgreement(calls, devices_);
}

bool InProcessRendezvous::TakeBlock(int64_t count, int64_t* block) {
  *block = next_block_.fetch_add(1, std::memory_order_relaxed);
  return *block < count;
}

void InProcessRendezvous::PieceDone(int64_t count) {
  if (pieces_done_.fetch_add(1) + 1 == count) Wake();
}

void InProcessRendezvous::AwaitPieces(int64_t count) {
  const auto done = [&] { return pieces_done_.load() == count; };
  // No deadline: the other ranks are copying, and do not wait for anything.
  while (!done() && !WaitFor(done, Deadline::In(absl::Seconds(1)))) {
  }
}

void InProcessRendezvous::Abort(const absl::Status& why) {
  if (why.ok()) return;
  absl::MutexLock lock(&mutex_);
  if (aborted_.ok()) {
    aborted_ = absl::AbortedError(
        absl::StrCat("a rank gave up: ", why.ToString(absl::StatusToStringMode::kWithNoExtraData)));
  }
  is_aborted_.store(true);
  changed_.SignalAll();
}

absl::Status InProcessRendezvous::aborted() const {
  absl::MutexLock lock(&mutex_);
  return aborted_;
}

absl::StatusOr<uint64_t> InProcessRendezvous::Reset() {
  absl::MutexLock lock(&mutex_);
  for (size_t r = 0; r < slots_.size(); ++r) {
    if (slots_[r].inside.load() == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("reset of group '", name_, "': ", RankText(static_cast<int>(r), devices_[r]),
                     " is in a collective; wait until every rank's call has returned"));
  }
  aborted_ = absl::OkStatus();
  is_aborted_.store(false);
  return turn_.load() / kTurn;
}

}  // namespace cairn
