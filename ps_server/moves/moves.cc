#include "ps_server/moves/moves.h"

#include <tuple>

#include "common/deadline.h"
#include "common/status.h"
#include "ps_server/moves/arriving_rows.h"
#include "ps_server/moves/outgoing_rows.h"

namespace cairn {

Move::Move(VariableSpec to, int64_t begun_as, std::unique_ptr<OutgoingRows> out,
           std::unique_ptr<ArrivingRows> in)
    : map(std::move(to)), start(begun_as), outgoing(std::move(out)), arriving(std::move(in)) {}

Move::~Move() = default;

void Move::ReservePieces(MemoryHold& charged, int64_t bytes) {
  read_at = MonotonicNow();
  pieces.clear();
  pieces_hold_.Take(charged, uncharged_bytes(bytes));
  pieces.reserve(static_cast<size_t>(bytes));
}

void Move::FreePieces() {
  std::string().swap(pieces);
  pieces_hold_ = MemoryHold();
}

absl::Status Move::CheckGoesOn() const {
  if (ended) return absl::FailedPreconditionError("the move was aborted");
  if (!lost_changes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "a READ failed after it had taken changes, which the target would lack: begin with PREPARE");
}

std::shared_ptr<Move> Moves::Find(absl::string_view job, absl::string_view variable) const {
  absl::MutexLock lock(&mutex_);
  const auto found = moves_.find(KeyView(job, variable));
  return found == moves_.end() ? nullptr : found->second;
}

int64_t Moves::StartOf(const KeyView& key, int64_t version) const {
  const auto claim = claims_.find(key);
  return claim == claims_.end() || claim->second.version != version ? 0 : claim->second.start;
}

bool Moves::Claim(absl::string_view job, absl::string_view variable, int64_t version,
                  int64_t start) {
  const Key key = KeyOf(job, variable);
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = MonotonicNow();
  if (start < StartOf(key, version) && now < claims_[key].seen + claim_limit_) return false;
  claims_[key] = {.version = version, .start = start, .seen = now};
  return true;
}

void Moves::RenewClaim(absl::string_view job, absl::string_view variable, int64_t start) {
  absl::MutexLock lock(&mutex_);
  const auto claim = claims_.find(KeyView(job, variable));
  if (claim != claims_.end() && claim->second.start == start) claim->second.seen = MonotonicNow();
}

bool Moves::HasClaim(absl::string_view job, absl::string_view variable, int64_t version,
                     int64_t start) const {
  absl::MutexLock lock(&mutex_);
  return start == StartOf(KeyView(job, variable), version);
}

bool Moves::Put(absl::string_view job, absl::string_view variable, std::shared_ptr<Move> move) {
  Key key = KeyOf(job, variable);
  absl::MutexLock lock(&mutex_);
  if (move->start != StartOf(key, move->map.map_version)) return false;
  if (move->arriving != nullptr && arrivals_closed_) return false;
  moves_[std::move(key)] = std::move(move);
  return true;
}

bool Moves::CloseArrivals(std::string* job, std::string* variable) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, move] : moves_) {
    if (move->arriving == nullptr) continue;
    std::tie(*job, *variable) = key;
    return false;
  }
  arrivals_closed_ = true;
  return true;
}

void Moves::OpenArrivals() {
  absl::MutexLock lock(&mutex_);
  arrivals_closed_ = false;
}

bool Moves::arrivals_closed() const {
  absl::MutexLock lock(&mutex_);
  return arrivals_closed_;
}

void Moves::FreeIdlePieces(absl::Duration idle) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, move] : moves_) {
    if (!move->mutex.TryLock()) continue;  // a step is running
    if (MonotonicNow() - move->read_at >= idle) move->FreePieces();
    move->mutex.Unlock();
  }
}

void Moves::Erase(absl::string_view job, absl::string_view variable) {
  absl::MutexLock lock(&mutex_);
  const auto found = moves_.find(KeyView(job, variable));
  if (found != moves_.end()) moves_.erase(found);
}

void Moves::EraseJob(absl::string_view job) {
  absl::MutexLock lock(&mutex_);
  const auto of_job = [job](const auto& entry) { return entry.first.first == job; };
  std::erase_if(moves_, of_job);
  std::erase_if(claims_, of_job);
}

}  // namespace cairn
