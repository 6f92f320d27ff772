#include "thrift/local/ticket_table.h"

#include <sys/random.h>

#include <utility>

#include "absl/status/status.h"
#include "thrift/local/limits.h"

namespace cairn {

absl::StatusOr<std::string> TicketTable::Issue(Bearer bearer) {
  std::string number(kLocalTicketBytes, '\0');
  if (::getrandom(number.data(), number.size(), 0) != static_cast<ssize_t>(number.size())) {
    return absl::UnavailableError("local transport: the system has no random numbers");
  }
  const absl::MutexLock lock(&mutex_);
  while (!tickets_.empty() && (tickets_.size() >= most_ || tickets_.front().end.Expired())) {
    DropOldest();
  }
  tickets_.push_back({number, Deadline::In(life_), std::move(bearer)});
  by_number_[number] = std::prev(tickets_.end());
  return number;
}

std::optional<TicketTable::Bearer> TicketTable::Redeem(absl::string_view ticket) {
  const absl::MutexLock lock(&mutex_);
  const auto found = by_number_.find(ticket);
  if (found == by_number_.end()) return std::nullopt;
  const std::list<Ticket>::iterator at = found->second;
  by_number_.erase(found);
  std::optional<Bearer> bearer;
  if (!at->end.Expired()) bearer.emplace(std::move(at->bearer));
  tickets_.erase(at);
  return bearer;
}

void TicketTable::DropOldest() {
  by_number_.erase(tickets_.front().number);
  tickets_.pop_front();
}

}  // namespace cairn
