#include "common/host_lookup.h"

#include <map>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/blocking.h"
#include "common/errors.h"
#include "common/monotonic_cond_var.h"

namespace cairn {
namespace {

absl::StatusOr<HostAddresses> Resolve(const HostLookup& look_up, const std::string& host,
                                      const std::string& port, int flags, int* error) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  *error = look_up(host.c_str(), port.c_str(), &hints, &found);
  if (*error == 0)
    return HostAddresses(found,
                         [](const addrinfo* a) { ::freeaddrinfo(const_cast<addrinfo*>(a)); });
  return Unavailable("host name \"", host, "\": ", ::gai_strerror(*error));
}

// A lookup in progress. Thread safety: every method may be called from several threads at once.
class Pending {
 public:
  void End(absl::StatusOr<HostAddresses> result) {
    const absl::MutexLock lock(&mutex_);
    result_ = std::move(result);
    ended_ = true;
    changed_.SignalAll();
  }
  // Null if the deadline has passed.
  const absl::StatusOr<HostAddresses>* Wait(Deadline deadline) {
    const Blocking blocking;
    const absl::MutexLock lock(&mutex_);
    while (!ended_ && !deadline.Expired()) changed_.WaitUntil(&mutex_, deadline);
    return ended_ ? &result_ : nullptr;
  }

 private:
  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Does not change once ended_ is set.
  absl::StatusOr<HostAddresses> result_ = absl::UnknownError("not looked up yet");
};

// Lives as long as the process, because threads that no caller waits for use it until they end.
struct Lookups {
  absl::Mutex mutex;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Pending>> pending
      ABSL_GUARDED_BY(mutex);
};
Lookups& AllLookups() {
  static Lookups* const lookups = new Lookups;
  return *lookups;
}

std::shared_ptr<Pending> StartOrJoin(const std::string& host, const std::string& port,
                                     const HostLookup& look_up) {
  Lookups& lookups = AllLookups();
  const absl::MutexLock lock(&lookups.mutex);
  const auto pending = std::make_shared<Pending>();
  const auto [at, is_new] = lookups.pending.try_emplace({host, port}, pending);
  if (!is_new) return at->second;
  // Without a thread, later callers would wait for this lookup for ever.
  absl::Cleanup forget = [&lookups, at = at] {
    lookups.mutex.AssertHeld();
    lookups.pending.erase(at);
  };
  try {
    std::thread([pending, key = at->first, look_up] {
      absl::StatusOr<HostAddresses> result = absl::ResourceExhaustedError("");
      try {
        int error = 0;
        result = Resolve(look_up, key.first, key.second, 0, &error);
      } catch (const std::bad_alloc&) {
      }
      {
        Lookups& all = AllLookups();
        const absl::MutexLock erasing(&all.mutex);
        all.pending.erase(key);
      }
      pending->End(std::move(result));
    }).detach();
    std::move(forget).Cancel();
  } catch (const std::system_error& error) {
    pending->End(Unavailable("host name \"", host, "\": no thread to look it up: ", error.what()));
  }
  return pending;
}

}  // namespace

absl::StatusOr<HostAddresses> LookUpHost(const std::string& host, const std::string& port,
                                         Deadline deadline, const HostLookup& look_up) {
  const HostLookup lookup = look_up != nullptr ? look_up : HostLookup(&::getaddrinfo);
  int error = 0;
  absl::StatusOr<HostAddresses> number =
      Resolve(&::getaddrinfo, host, port, AI_NUMERICHOST | AI_NUMERICSERV, &error);
  if (error != EAI_NONAME) return number;
  const std::shared_ptr<Pending> pending = StartOrJoin(host, port, lookup);
  const absl::StatusOr<HostAddresses>* const result = pending->Wait(deadline);
  if (result != nullptr) return *result;
  return DeadlineExceeded("host name \"", host,
                          "\" was not resolved before the deadline: check the machine's name ",
                          "servers, or give a numeric address");
}

}  // namespace cairn
