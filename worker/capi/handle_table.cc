#include "worker/capi/handle_table.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/errors.h"
#include "common/status.h"

namespace cairn::capi {
namespace {

struct Entry {
  HandleKind kind;
  std::shared_ptr<void> object;
};

struct Table {
  absl::Mutex mutex;
  absl::flat_hash_map<uintptr_t, Entry> entries ABSL_GUARDED_BY(mutex);
};

// Numbers that no allocation has as its address.
constexpr uintptr_t kFirst = 0x11;
constexpr uintptr_t kStride = 0x10;

std::atomic<uintptr_t> next_handle = kFirst;
std::atomic<uintptr_t> first_of_process = kFirst;
// Never destroyed: threads may use it while the process ends. Replaced in a forked child, where the
// parent's mutex may be locked forever.
std::atomic<Table*> table = nullptr;

void BeginChild() {
  table = new Table;
  first_of_process = next_handle.load();
}

Table& TheTable() {
  static const bool once = [] {
    table = new Table;
    ::pthread_atfork(nullptr, nullptr, BeginChild);
    return true;
  }();
  (void)once;
  return *table;
}

absl::string_view KindName(HandleKind kind) {
  switch (kind) {
    case HandleKind::kClient: return "client";
    case HandleKind::kScan: return "scan";
    case HandleKind::kServers: return "servers";
    case HandleKind::kReader: return "reader";
    case HandleKind::kRecords: return "record reader";
  }
  return "handle";
}

absl::StatusOr<std::shared_ptr<void>> Look(HandleKind kind, const void* handle, bool remove) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number == 0) return InvalidArgument(KindName(kind), ": is null");
  Table& handles = TheTable();
  if (number < first_of_process) {
    return FailedPrecondition(
        KindName(kind),
        ": was opened by the process that forked this one, which has none of its "
        "connections and threads: connect in this process");
  }
  std::shared_ptr<void> object;
  if (remove) {
    absl::MutexLock lock(&handles.mutex);
    const auto found = handles.entries.find(number);
    if (found != handles.entries.end() && found->second.kind == kind) {
      object = std::move(found->second.object);
      handles.entries.erase(found);
    }
  } else {
    absl::ReaderMutexLock lock(&handles.mutex);
    const auto found = handles.entries.find(number);
    if (found != handles.entries.end() && found->second.kind == kind) object = found->second.object;
  }
  if (object != nullptr) return object;
  return FailedPrecondition(KindName(kind), ": is closed: open another one");
}

}  // namespace

void* InsertHandle(HandleKind kind, std::shared_ptr<void> object) {
  Table& handles = TheTable();
  const uintptr_t number = next_handle.fetch_add(kStride);
  absl::MutexLock lock(&handles.mutex);
  handles.entries.emplace(number, Entry{kind, std::move(object)});
  return reinterpret_cast<void*>(number);
}

absl::StatusOr<std::shared_ptr<void>> FindHandle(HandleKind kind, const void* handle) {
  return Look(kind, handle, /*remove=*/false);
}

absl::StatusOr<std::shared_ptr<void>> RemoveHandle(HandleKind kind, const void* handle) {
  return Look(kind, handle, /*remove=*/true);
}

}  // namespace cairn::capi
