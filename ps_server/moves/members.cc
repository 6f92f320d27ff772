#include "ps_server/moves/members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/crash_point.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/limits.h"
#include "thrift/struct_bytes.h"

namespace cairn {
namespace {

// Names of the notes in the store.
constexpr char kMembers[] = "members";
constexpr char kLastWords[] = "last_words/";  // followed by the server's index; the text is a
                                              // ChangeMembersRequest
constexpr char kLeft[] = "left";

wire::Member* Find(wire::Members& members, int32_t index) {
  for (wire::Member& member : members.members) {
    if (member.index == index) return &member;
  }
  return nullptr;
}

wire::Member& FindOrAdd(wire::Members& members, int32_t index) {
  if (wire::Member* const found = Find(members, index); found != nullptr) return *found;
  const auto at = std::ranges::find_if(
      members.members, [index](const wire::Member& member) { return member.index > index; });
  const auto made = members.members.emplace(at);
  made->index = index;
  return *made;
}

}  // namespace

Members::Members(int32_t server_index, int32_t server_count)
    : server_index_(server_index), server_count_(server_count) {}

absl::Status Members::Load(const StripeStore& store) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const std::vector<NoteRecord> notes, store.Notes());
  for (const NoteRecord& note : notes) {
    absl::string_view name = note.name;
    int32_t index = 0;
    if (name == kMembers) {
      ASSIGN_OR_RETURN(members_, StructFromBytes<wire::Members>(note.text, "list of servers"));
    } else if (name == kLeft) {
      left_.store(true);
    } else if (absl::ConsumePrefix(&name, kLastWords) && absl::SimpleAtoi(name, &index)) {
      ASSIGN_OR_RETURN(wire::ChangeMembersRequest words,
                       StructFromBytes<wire::ChangeMembersRequest>(note.text, "server's end"));
      last_words_[index] = std::move(words.last_words);
    }
  }
  version_.store(members_.version, std::memory_order_release);
  return absl::OkStatus();
}

int32_t Members::CountLocked() const { return std::max(server_count_, members_.server_count); }

wire::Members Members::Tell(absl::string_view job, int32_t worker) const {
  absl::MutexLock lock(&mutex_);
  wire::Members told = members_;
  told.server_count = CountLocked();
  for (wire::Member& member : told.members) {
    const auto words = last_words_.find(member.index);
    if (words == last_words_.end()) continue;
    for (const wire::LastWord& word : words->second) {
      if (word.worker != worker || word.job != job) continue;
      member.applied = word.applied;
      member.incarnation = word.incarnation;
    }
  }
  return told;
}

absl::Status Members::Add(int32_t index, const std::string& address, StripeStore& store) {
  absl::MutexLock lock(&mutex_);
  const int32_t count = CountLocked();
  wire::Members next = members_;
  if (index < count) {
    const wire::Member* const known = Find(next, index);
    if (known == nullptr) return absl::OkStatus();  // listed in the cluster file
    if (!known->left && known->address == address) return absl::OkStatus();
    return absl::FailedPreconditionError(
        known->left ? absl::StrCat("ps:", index, " has left, and an index is not used again: the ",
                                   "next one is ps:", count)
                    : absl::StrCat("ps:", index, " is at ", known->address, ", not at ", address));
  }
  if (index > count || index >= kMaxServers) {
    return FailedPrecondition("there are ", count, " servers, so that the next one is ps:", count,
                              ", not ps:", index, "; at most ", kMaxServers,
                              " are allowed, including servers that have left");
  }
  wire::Member& member = next.members.emplace_back();
  member.index = index;
  member.address = address;
  return Publish(std::move(next), index, store);
}

absl::Status Members::Remove(int32_t index, const std::vector<wire::LastWord>& words,
                             StripeStore& store) {
  absl::MutexLock lock(&mutex_);
  if (index == 0) {
    return absl::InvalidArgumentError("ps:0 cannot leave: it keeps the list of servers");
  }
  if (index >= CountLocked()) {
    return NotFound("there is no ps:", index, "; the last is ps:", CountLocked() - 1);
  }
  wire::Members next = members_;
  wire::Member& member = FindOrAdd(next, index);
  if (member.left) return absl::OkStatus();
  member.left = true;
  last_words_[index] = words;
  return Publish(std::move(next), index, store);
}

absl::Status Members::Publish(wire::Members next, int32_t index, StripeStore& store) {
  next.version = members_.version + 1;
  next.server_count = std::max(CountLocked(), index + 1);
  std::vector<NoteRecord> notes = {{kMembers, StructToBytes(next)}};
  if (const auto words = last_words_.find(index); words != last_words_.end()) {
    wire::ChangeMembersRequest end;
    end.index = index;
    end.last_words = words->second;
    notes.push_back({absl::StrCat(kLastWords, index), StructToBytes(end)});
  }
  CAIRN_CRASH_POINT("members: before they are written");
  RETURN_IF_ERROR(store.PutNotes(notes));
  CAIRN_CRASH_POINT("members: written");
  swap(members_, next);  // cannot throw: callers see exactly what is on disk
  version_.store(members_.version, std::memory_order_release);
  return absl::OkStatus();
}

std::vector<int32_t> Members::Departed() const {
  absl::MutexLock lock(&mutex_);
  std::vector<int32_t> departed;
  for (const wire::Member& member : members_.members) {
    if (member.left) departed.push_back(member.index);
  }
  return departed;
}

std::vector<wire::LastWord> Members::LastWords(int32_t index) const {
  absl::MutexLock lock(&mutex_);
  const auto words = last_words_.find(index);
  return words == last_words_.end() ? Words() : words->second;
}

absl::Status Members::Leave(StripeStore& store) {
  absl::MutexLock lock(&mutex_);
  if (left_.load()) return absl::OkStatus();
  const NoteRecord note{kLeft, "left"};
  RETURN_IF_ERROR(store.PutNotes({&note, 1}));
  left_.store(true);
  return absl::OkStatus();
}

absl::Status Members::CheckStays() const {
  if (!left_.load()) return absl::OkStatus();
  return FailedPrecondition(
      "ps:", server_index_,
      " has left the cluster and takes no rows, and its index is not used again: to "
      "use its machine again, start a server with the next index there, with an empty "
      "--data_dir, then cairnctl servers add");
}

}  // namespace cairn
