#include "ps_server/net/connection_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "common/log.h"

namespace cairn {
namespace {

constexpr size_t kEvents = 256;  // events of one epoll_wait

}  // namespace

absl::Status ConnectionLoop::Open(CallPool* pool) {
  pool_ = pool;
  epoll_.Reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_.get() >= 0 && wake_.get() >= 0 &&
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0) {
    return absl::OkStatus();
  }
  return ResourceExhausted("epoll: ", std::strerror(errno));
}

void ConnectionLoop::Park(Parkable& parkable, Until until, Deadline deadline) {
  epoll_event event = {};
  // One-shot: no further event until the connection is parked again.
  event.events = (until == Until::kReadable ? EPOLLIN : EPOLLOUT) | EPOLLONESHOT;
  event.data.ptr = &parkable;
  {
    const absl::MutexLock lock(&mutex_);
    parkable.is_tidy_ = false;
    parkable.since_ = MonotonicNow();
    parkable.until_ = parkable.since_ + deadline.Remaining();
    parkable.expired_ = false;
    parked_.Append(parkable);
    // Registers under the lock, so that a thread that finds the connection ready or expired finds
    // it in parked_.
    const int how = parkable.known_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    parkable.known_ = true;
    if (::epoll_ctl(epoll_.get(), how, parkable.fd(), &event) == 0) return;
    LOG_EVERY_T(ERROR, 1) << "epoll: " << std::strerror(errno) << ": ending a connection";
    parked_.Remove(parkable);
  }
  ::shutdown(parkable.fd(), SHUT_RDWR);
  Queue(parkable);
}

void ConnectionLoop::Queue(Parkable& parkable) {
  parkable.expired_ = false;
  pool_->Add(&parkable);
}

void ConnectionLoop::Poll(CallPool::Tasks& ready) {
  std::array<epoll_event, kEvents> events;
  const int64_t ms = absl::ToInt64Milliseconds(tick_) + 1;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEvents, static_cast<int>(ms));
  const absl::MutexLock lock(&mutex_);
  for (int i = 0; i < count; ++i) {
    auto* const parkable = static_cast<Parkable*>(events[static_cast<size_t>(i)].data.ptr);
    if (parkable == nullptr) continue;
    parked_.Remove(*parkable);
    ready.Append(*parkable);
  }
  if (!look_.Expired()) return;
  TakeExpired(ready);
  look_ = Deadline::In(tick_);
}

void ConnectionLoop::TakeExpired(CallPool::Tasks& ready) {
  const absl::Duration now = MonotonicNow();
  for (auto next = parked_.begin(); next != parked_.end();) {
    auto& parkable = static_cast<Parkable&>(**next);
    ++next;
    if (parkable.until_ > now) {
      if (!parkable.is_tidy_ && parkable.since_ + tick_ <= now) {
        parkable.Tidy();
        parkable.is_tidy_ = true;
      }
      continue;
    }
    // Unregister the connection: it may be destroyed before a later event.
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, parkable.fd(), nullptr);
    parkable.known_ = false;
    parkable.expired_ = true;
    parked_.Remove(parkable);
    ready.Append(parkable);
  }
}

// Permanent: the eventfd stays readable.
void ConnectionLoop::Interrupt() {
  const uint64_t one = 1;
  if (wake_.get() >= 0 && ::write(wake_.get(), &one, sizeof(one)) < 0) PLOG(ERROR) << "eventfd";
}

}  // namespace cairn
