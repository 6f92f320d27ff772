#include "worker/client/moves/update_replanner.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/status.h"
#include "worker/client/delivery/retained_call.h"
#include "worker/client/moves/map_follower.h"
#include "worker/client/routing/moved_parts.h"

namespace cairn {
namespace {

// The server whose rows stay in a call for `session`; -1 where that server has left.
int32_t KeptServer(const ServerSession& session) {
  return session.departed() ? -1 : session.index();
}

}  // namespace

template <typename Item>
absl::Status UpdateReplanner::ExtractMovedItems(const Exchange& exchange, std::vector<Item>& items,
                                                bool numbered, std::vector<Exchange>* late) const {
  const auto find = [this](absl::string_view name) { return variables_.Find(name); };
  ASSIGN_OR_RETURN(MovedParts<Item> parts,
                   RepartitionItems(items, KeptServer(*exchange.session), find));
  for (auto& [server, elsewhere] : parts.elsewhere) {
    Exchange& part = late->emplace_back();
    part.session = &sessions_[static_cast<size_t>(server)];
    part.repeatable = numbered;
    part.call.kind = exchange.call.kind;
    SequenceOf(part.call) = SequenceOf(exchange.call);
    WithUpdate(part.call, [&](auto& update) { update.late = numbered; });
    ItemsOf<Item>(part.call) = std::move(elsewhere);
  }
  items = std::move(parts.here);
  return absl::OkStatus();
}

template absl::Status UpdateReplanner::ExtractMovedItems(const Exchange&,
                                                         std::vector<wire::PushItem>&, bool,
                                                         std::vector<Exchange>*) const;
template absl::Status UpdateReplanner::ExtractMovedItems(const Exchange&,
                                                         std::vector<wire::AssignItem>&, bool,
                                                         std::vector<Exchange>*) const;

// Uses one map of each variable throughout, though newer maps may arrive: an item cannot hold rows
// of two maps. A server that has taken its part already has no rows that move away.
absl::Status UpdateReplanner::Repartition(std::vector<Exchange*>* all, std::deque<Exchange>* joined,
                                          std::vector<Exchange*>* again) {
  absl::flat_hash_map<std::string, ClientVariablePtr> maps;
  const auto find = [&](absl::string_view name) {
    const auto [map, is_new] = maps.try_emplace(name, nullptr);
    if (is_new) map->second = variables_.Find(name);
    return map->second;
  };
  std::map<int32_t, std::vector<wire::PushItem>> arriving;  // by server
  for (Exchange* exchange : *all) {
    std::vector<wire::PushItem>& items = exchange->call.request.push.items;
    ASSIGN_OR_RETURN(MovedParts<wire::PushItem> parts,
                     RepartitionItems(items, KeptServer(*exchange->session), find));
    items = std::move(parts.here);
    for (auto& [server, elsewhere] : parts.elsewhere) {
      RETURN_IF_ERROR(AddItems(std::move(elsewhere), &arriving[server]));
    }
  }
  bool any_new = false;
  for (const auto& [server, items] : arriving) {
    const bool there = std::ranges::any_of(
        *all, [server = server](const Exchange* to) { return to->session->index() == server; });
    if (there) continue;
    Exchange& exchange = joined->emplace_back();
    exchange.session = &sessions_[static_cast<size_t>(server)];
    exchange.call.kind = CallKind::kPush;
    exchange.call.request.push.step = all->front()->call.request.push.step;
    exchange.call.request.push.rows = all->front()->call.request.push.rows;
    all->push_back(&exchange);
    any_new = true;
  }
  // Tell the other servers that the new server has a part of this sequence.
  if (any_new) RETURN_IF_ERROR(order_.NumberAgain(*all));
  for (Exchange* exchange : *all) {
    const auto arrives = arriving.extract(exchange->session->index());
    wire::PushRequest& push = exchange->call.request.push;
    if (!arrives.empty()) RETURN_IF_ERROR(AddItems(std::move(arrives.mapped()), &push.items));
    if (exchange->session->departed() && push.items.empty()) {
      exchange->sent = exchange->done = true;
      exchange->outcome = {Progress::kAnswered, absl::OkStatus()};
      exchange->call.reply.push = {};  // left from an earlier call
    } else if (!arrives.empty() || any_new || Moved(*exchange)) {
      push.replaces = true;
      again->push_back(exchange);
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
