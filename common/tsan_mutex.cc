// Reports the operations of absl::Mutex, absl::CondVar and absl::Notification to ThreadSanitizer.
// The packaged Abseil is built without it, so ThreadSanitizer would not see that they order
// anything. Only builds with -Db_sanitize=thread compile this file. The linker's --wrap
// (common/meson.build) redirects the calls of our objects to it.
#include <sanitizer/tsan_interface.h>

#include <cstddef>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

#define CAIRN_WRAP(result, name, symbol, ...)                      \
  extern "C" result Real##name(__VA_ARGS__) asm("__real_" symbol); \
  extern "C" result Wrap##name(__VA_ARGS__) asm("__wrap_" symbol)

CAIRN_WRAP(void, Lock, "_ZN4absl7debian35Mutex4LockEv", absl::Mutex* mutex);
CAIRN_WRAP(void, Unlock, "_ZN4absl7debian35Mutex6UnlockEv", absl::Mutex* mutex);
CAIRN_WRAP(bool, TryLock, "_ZN4absl7debian35Mutex7TryLockEv", absl::Mutex* mutex);
CAIRN_WRAP(void, ReaderLock, "_ZN4absl7debian35Mutex10ReaderLockEv", absl::Mutex* mutex);
CAIRN_WRAP(void, ReaderUnlock, "_ZN4absl7debian35Mutex12ReaderUnlockEv", absl::Mutex* mutex);
CAIRN_WRAP(void, Await, "_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE", absl::Mutex* mutex,
           const absl::Condition& condition);
CAIRN_WRAP(bool, AwaitWithTimeout,
           "_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE",
           absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout);
CAIRN_WRAP(bool, AwaitWithDeadline,
           "_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE",
           absl::Mutex* mutex, const absl::Condition& condition, absl::Time deadline);
CAIRN_WRAP(void, LockWhen, "_ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE", absl::Mutex* mutex,
           const absl::Condition& condition);
CAIRN_WRAP(void, Wait, "_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", absl::CondVar* condition,
           absl::Mutex* mutex);
CAIRN_WRAP(bool, WaitWithTimeout,
           "_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
           absl::CondVar* condition, absl::Mutex* mutex, absl::Duration timeout);
CAIRN_WRAP(bool, WaitWithDeadline,
           "_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
           absl::CondVar* condition, absl::Mutex* mutex, absl::Time deadline);
CAIRN_WRAP(void, Notify, "_ZN4absl7debian312Notification6NotifyEv", absl::Notification* notified);
CAIRN_WRAP(void, WaitForNotification, "_ZNK4absl7debian312Notification19WaitForNotificationEv",
           const absl::Notification* notified);
CAIRN_WRAP(bool, WaitForNotificationWithTimeout,
           "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE",
           const absl::Notification* notified, absl::Duration timeout);

namespace {

constexpr unsigned kExclusive = 0;

// A wait releases the mutex and acquires it again.
class WhileWaiting {
 public:
  explicit WhileWaiting(absl::Mutex* mutex) : mutex_(mutex) {
    __tsan_mutex_pre_unlock(mutex_, kExclusive);
    __tsan_mutex_post_unlock(mutex_, kExclusive);
  }
  ~WhileWaiting() {
    __tsan_mutex_pre_lock(mutex_, kExclusive);
    __tsan_mutex_post_lock(mutex_, kExclusive, 0);
  }

 private:
  absl::Mutex* const mutex_;
};

// The flag behind the notification's mutex. HasBeenNotified is inline, so that ThreadSanitizer sees
// that it acquires the flag.
void* FlagOf(const absl::Notification* notified) {
  static_assert(sizeof(absl::Notification) == 2 * sizeof(absl::Mutex));
  return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(notified)) + sizeof(absl::Mutex);
}

}  // namespace

void WrapLock(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, kExclusive);
  RealLock(mutex);
  __tsan_mutex_post_lock(mutex, kExclusive, 0);
}

void WrapUnlock(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, kExclusive);
  RealUnlock(mutex);
  __tsan_mutex_post_unlock(mutex, kExclusive);
}

bool WrapTryLock(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
  const bool locked = RealTryLock(mutex);
  __tsan_mutex_post_lock(
      mutex, __tsan_mutex_try_lock | (locked ? 0u : unsigned{__tsan_mutex_try_lock_failed}), 0);
  return locked;
}

void WrapReaderLock(absl::Mutex* mutex) {
  __tsan_mutex_pre_lock(mutex, __tsan_mutex_read_lock);
  RealReaderLock(mutex);
  __tsan_mutex_post_lock(mutex, __tsan_mutex_read_lock, 0);
}

void WrapReaderUnlock(absl::Mutex* mutex) {
  __tsan_mutex_pre_unlock(mutex, __tsan_mutex_read_lock);
  RealReaderUnlock(mutex);
  __tsan_mutex_post_unlock(mutex, __tsan_mutex_read_lock);
}

void WrapAwait(absl::Mutex* mutex, const absl::Condition& condition) {
  const WhileWaiting waiting(mutex);
  RealAwait(mutex, condition);
}

bool WrapAwaitWithTimeout(absl::Mutex* mutex, const absl::Condition& condition,
                          absl::Duration timeout) {
  const WhileWaiting waiting(mutex);
  return RealAwaitWithTimeout(mutex, condition, timeout);
}

bool WrapAwaitWithDeadline(absl::Mutex* mutex, const absl::Condition& condition,
                           absl::Time deadline) {
  const WhileWaiting waiting(mutex);
  return RealAwaitWithDeadline(mutex, condition, deadline);
}

void WrapLockWhen(absl::Mutex* mutex, const absl::Condition& condition) {
  __tsan_mutex_pre_lock(mutex, kExclusive);
  RealLockWhen(mutex, condition);
  __tsan_mutex_post_lock(mutex, kExclusive, 0);
}

void WrapWait(absl::CondVar* condition, absl::Mutex* mutex) {
  const WhileWaiting waiting(mutex);
  RealWait(condition, mutex);
}

bool WrapWaitWithTimeout(absl::CondVar* condition, absl::Mutex* mutex, absl::Duration timeout) {
  const WhileWaiting waiting(mutex);
  return RealWaitWithTimeout(condition, mutex, timeout);
}

bool WrapWaitWithDeadline(absl::CondVar* condition, absl::Mutex* mutex, absl::Time deadline) {
  const WhileWaiting waiting(mutex);
  return RealWaitWithDeadline(condition, mutex, deadline);
}

void WrapNotify(absl::Notification* notified) {
  __tsan_release(FlagOf(notified));
  RealNotify(notified);
}

void WrapWaitForNotification(const absl::Notification* notified) {
  RealWaitForNotification(notified);
  __tsan_acquire(FlagOf(notified));
}

bool WrapWaitForNotificationWithTimeout(const absl::Notification* notified,
                                        absl::Duration timeout) {
  const bool in_time = RealWaitForNotificationWithTimeout(notified, timeout);
  if (in_time) __tsan_acquire(FlagOf(notified));
  return in_time;
}
