#include "thrift/member_list.h"

#include "thrift/limits.h"

namespace cairn {

void MemberList::Take(const wire::Members& members) {
  version = members.version;
  for (const wire::Member& member : members.members) {
    if (member.index < 0 || member.index >= kMaxServers) continue;
    const auto index = static_cast<size_t>(member.index);
    if (index >= addresses.size()) addresses.resize(index + 1);
    if (!member.address.empty()) addresses[index] = member.address;
    left.resize(addresses.size());
    left[index] = member.left;
  }
}

std::vector<int32_t> MemberList::Live() const {
  std::vector<int32_t> live;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!HasLeft(i)) live.push_back(static_cast<int32_t>(i));
  }
  return live;
}

}  // namespace cairn
