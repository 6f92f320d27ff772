#include "worker/client/delivery/server_table.h"

#include <algorithm>
#include <utility>

#include "thrift/limits.h"

namespace cairn {

ServerTable::ServerTable(std::vector<std::unique_ptr<ServerSession>> sessions)
    : slots_(std::max<size_t>(sessions.size(), kMaxServers)), size_(sessions.size()) {
  for (size_t s = 0; s < sessions.size(); ++s) slots_[s].store(sessions[s].get());
  all_ = std::move(sessions);
}

std::vector<int32_t> ServerTable::Live() const {
  std::vector<int32_t> live;
  ForEachLive([&](const ServerSession& session) { live.push_back(session.index()); });
  return live;
}

void ServerTable::Put(std::unique_ptr<ServerSession> session) {
  absl::MutexLock lock(&mutex_);
  const auto index = static_cast<size_t>(session->index());
  slots_[index].store(session.get(), std::memory_order_release);
  if (index >= size()) size_.store(index + 1, std::memory_order_release);
  all_.push_back(std::move(session));
  changed_.SignalAll();
}

void ServerTable::WaitForMore(size_t known, Deadline deadline) {
  absl::MutexLock lock(&mutex_);
  while (size() <= known && !waits_ended_ && !deadline.Expired()) {
    changed_.WaitUntil(&mutex_, deadline);
  }
}

void ServerTable::EndWaits() {
  absl::MutexLock lock(&mutex_);
  waits_ended_ = true;
  changed_.SignalAll();
}

}  // namespace cairn
