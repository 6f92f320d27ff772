#include "ps_server/net/connection_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace cairn {
namespace {

constexpr size_t kEvents = 256;  // events of one epoll_wait

}  // namespace

ConnectionLoop::~ConnectionLoop() {
  if (epoll_ >= 0) ::close(epoll_);
  if (wake_ >= 0) ::close(wake_);
}

absl::Status ConnectionLoop::Open(CallPool* pool) {
  pool_ = pool;
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_ >= 0 && wake_ >= 0 && ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("epoll: ", std::strerror(errno)));
}

void ConnectionLoop::Park(Guest& guest, Until until, Deadline deadline) {
  epoll_event event = {};
  // One-shot: no further event until the guest is parked again.
  event.events = (until == Until::kReadable ? EPOLLIN : EPOLLOUT) | EPOLLONESHOT;
  event.data.ptr = &guest;
  {
    const absl::MutexLock lock(&mutex_);
    guest.is_tidy_ = false;
    guest.since_ = MonotonicNow();
    guest.until_ = guest.since_ + deadline.Remaining();
    guest.expired_ = false;
    guest.place_ = resting_.size();
    resting_.push_back(&guest);
    // Registers under the lock, so that a thread that finds the guest ready or expired finds it in
    // resting_.
    const int how = guest.known_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    guest.known_ = true;
    if (::epoll_ctl(epoll_, how, guest.fd(), &event) == 0) return;
    LOG_EVERY_T(ERROR, 1) << "epoll: " << std::strerror(errno) << ": ending a connection";
    EndRest(guest);
  }
  ::shutdown(guest.fd(), SHUT_RDWR);
  Queue(guest);
}

void ConnectionLoop::Queue(Guest& guest) {
  guest.expired_ = false;
  pool_->Add(&guest);
}

void ConnectionLoop::EndRest(Guest& guest) {
  Guest* const last = resting_.back();
  resting_[guest.place_] = last;
  last->place_ = guest.place_;
  resting_.pop_back();
}

void ConnectionLoop::Poll(std::vector<CallPool::Task*>& ready) {
  std::array<epoll_event, kEvents> events;
  const int64_t ms = absl::ToInt64Milliseconds(tick_) + 1;
  const int count = ::epoll_wait(epoll_, events.data(), kEvents, static_cast<int>(ms));
  const absl::MutexLock lock(&mutex_);
  for (int i = 0; i < count; ++i) {
    auto* const guest = static_cast<Guest*>(events[static_cast<size_t>(i)].data.ptr);
    if (guest == nullptr) continue;
    EndRest(*guest);
    ready.push_back(guest);
  }
  if (!look_.Expired()) return;
  TakeExpired(ready);
  look_ = Deadline::In(tick_);
}

void ConnectionLoop::TakeExpired(std::vector<CallPool::Task*>& ready) {
  const absl::Duration now = MonotonicNow();
  for (size_t i = 0; i < resting_.size();) {
    Guest& guest = *resting_[i];
    if (guest.until_ > now) {
      if (!guest.is_tidy_ && guest.since_ + tick_ <= now) {
        guest.Tidy();
        guest.is_tidy_ = true;
      }
      ++i;
      continue;
    }
    // Unregister the guest: it may be destroyed before a later event.
    (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, guest.fd(), nullptr);
    guest.known_ = false;
    guest.expired_ = true;
    EndRest(guest);
    ready.push_back(&guest);
  }
}

// Permanent: the eventfd stays readable.
void ConnectionLoop::Interrupt() {
  const uint64_t one = 1;
  if (wake_ >= 0 && ::write(wake_, &one, sizeof(one)) < 0) PLOG(ERROR) << "eventfd";
}

}  // namespace cairn
