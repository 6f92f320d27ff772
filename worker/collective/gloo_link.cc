#include "worker/collective/gloo_link.h"

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/errors.h"

namespace cairn {
namespace {

std::chrono::milliseconds MillisecondsLeft(Deadline deadline) {
  // Gloo interprets -1 as its own limit of 30 s.
  return std::chrono::milliseconds(
      std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline.Remaining())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooLink>> GlooLink::Open(const std::string& host, int rank,
                                                         int size, Deadline deadline) {
  auto link = std::unique_ptr<GlooLink>(new GlooLink());
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = host;
    link->device_ = gloo::transport::tcp::CreateDevice(attributes);
    link->context_ = link->device_->createContext(rank, size);
    // Timeout of Connect below; transfers have separate deadlines.
    link->context_->setTimeout(MillisecondsLeft(deadline));
    for (int r = 0; r < size; ++r) {
      if (r != rank) link->context_->createPair(r);
    }
  } catch (const std::exception& error) {
    return Unavailable("Gloo cannot use interface ", host, ": ", error.what());
  }
  return link;
}

std::vector<std::string> GlooLink::Addresses() const {
  std::vector<std::string> addresses(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const std::vector<char> bytes = context_->getPair(r)->address().bytes();
    addresses[static_cast<size_t>(r)].assign(bytes.begin(), bytes.end());
  }
  return addresses;
}

void GlooLink::Connect(const std::vector<std::string>& addresses) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const std::string& address = addresses[static_cast<size_t>(r)];
    try {
      context_->getPair(r)->connect(std::vector<char>(address.begin(), address.end()));
    } catch (const std::exception& error) {
      throw GlooFailure(r, absl::StrCat("connect: ", error.what()));
    }
  }
}

void GlooLink::Close() {
  if (closed_.exchange(true)) return;
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) context_->getPair(r)->close();
  }
}

char* GlooLink::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    scratch_.reset(new char[bytes]);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

void GlooLink::Interrupt() {
  absl::MutexLock lock(&mutex_);
  AbortWait();
}

void GlooLink::AbortWait() {
  interrupted_ = true;
  if (waiting_on_ == nullptr) return;
  waiting_on_->abortWaitRecv();
  waiting_on_->abortWaitSend();
}

GlooLink::Wait GlooLink::wait() const {
  absl::MutexLock lock(&mutex_);
  return {.number = waits_, .rank = waiting_for_};
}

void GlooLink::InterruptIfStill(const Wait& wait) {
  absl::MutexLock lock(&mutex_);
  if (waiting_on_ != nullptr && waits_ == wait.number) AbortWait();
}

template <typename WaitFor>
void GlooLink::Await(int rank, gloo::transport::UnboundBuffer* buffer, const char* what,
                     WaitFor wait_for) {
  {
    absl::MutexLock lock(&mutex_);
    if (interrupted_) throw GlooFailure(rank, "interrupted");
    waiting_on_ = buffer;
    waiting_for_ = rank;
    ++waits_;
  }
  bool done = false;
  std::string error = "interrupted";
  try {
    done = wait_for(MillisecondsLeft(deadline_));
  } catch (const std::exception& thrown) {
    error = absl::StrCat(what, ": ", thrown.what());
  }
  {
    absl::MutexLock lock(&mutex_);
    waiting_on_ = nullptr;
    waiting_for_ = -1;
  }
  if (!done) throw GlooFailure(rank, error);
}

void GlooBuffer::Post(int from, uint64_t tag, size_t offset, size_t bytes) {
  try {
    buffer_->recv(from, tag, offset, bytes);
  } catch (const std::exception& error) {
    not_posted_.emplace(from, absl::StrCat("receive: ", error.what()));
  }
}

void GlooBuffer::AwaitReceived(int from) {
  if (not_posted_.has_value()) throw GlooFailure(*not_posted_);
  link_.Await(from, buffer_.get(), "receive", [&](std::chrono::milliseconds timeout) {
    return buffer_->waitRecv(nullptr, timeout);
  });
}

void GlooBuffer::Send(int to, uint64_t tag, size_t offset, size_t bytes) {
  try {
    buffer_->send(to, tag, offset, bytes);
  } catch (const std::exception& error) {
    throw GlooFailure(to, absl::StrCat("send: ", error.what()));
  }
  sent_to_.push_back(to);
}

void GlooBuffer::AwaitOneSent() {
  link_.Await(sent_to_.front(), buffer_.get(), "send", [&](std::chrono::milliseconds timeout) {
    return buffer_->waitSend(nullptr, timeout);
  });
  sent_to_.pop_front();
}

void GlooBuffer::AwaitSent() {
  while (!sent_to_.empty()) AwaitOneSent();
}

}  // namespace cairn
