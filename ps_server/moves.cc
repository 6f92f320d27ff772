#include "ps_server/moves.h"

#include "ps_server/arriving_rows.h"
#include "ps_server/outgoing_rows.h"

namespace cairn {

Move::Move(VariableSpec to, int64_t begun_as, std::unique_ptr<OutgoingRows> out,
           std::unique_ptr<ArrivingRows> in)
    : map(std::move(to)), start(begun_as), outgoing(std::move(out)), arriving(std::move(in)) {}

Move::~Move() = default;

std::shared_ptr<Move> Moves::Find(absl::string_view job, absl::string_view variable) const {
  absl::MutexLock lock(&mutex_);
  const auto found = moves_.find(KeyOf(job, variable));
  return found == moves_.end() ? nullptr : found->second;
}

void Moves::Put(absl::string_view job, absl::string_view variable, std::shared_ptr<Move> move) {
  absl::MutexLock lock(&mutex_);
  moves_[KeyOf(job, variable)] = std::move(move);
}

void Moves::Erase(absl::string_view job, absl::string_view variable) {
  absl::MutexLock lock(&mutex_);
  moves_.erase(KeyOf(job, variable));
}

void Moves::EraseJob(absl::string_view job) {
  absl::MutexLock lock(&mutex_);
  absl::erase_if(moves_, [job](const auto& entry) { return entry.first.first == job; });
}

}  // namespace cairn
