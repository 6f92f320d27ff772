#include "worker/collective/control_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "worker/collective/collective_call.h"
#include "worker/collective/control_wire.h"

namespace cairn {
namespace {

// Maximum number of rendezvous in progress.
constexpr size_t kMaxRendezvous = 64;
// Pause after accept failed for lack of descriptors or memory, which others may free.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// Pause between attempts to reach a server that does not run yet.
constexpr absl::Duration kRetryPause = absl::Milliseconds(20);

std::string Reply(const absl::Status& status) {
  return ControlWriter()
      .Value(static_cast<int32_t>(status.code()))
      .Bytes({status.message().data(), status.message().size()})
      .Take();
}

}  // namespace

class ControlServer::Impl {
 public:
  // `stop`: an eventfd.
  Impl(Descriptor listener, Descriptor stop, std::string address, Status status,
       const Limits& limits)
      : listener_(std::move(listener)),
        address_(std::move(address)),
        status_(std::move(status)),
        limits_(limits),
        stop_(std::move(stop)) {}
  ~Impl() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }

  absl::Status Start() {
    ASSIGN_OR_RETURN(thread_, StartThread([this] { Serve(); }));
    return absl::OkStatus();
  }
  const std::string& address() const { return address_; }

 private:
  struct Connection {
    Descriptor fd;
    std::string in;
    std::string out;
    std::string rendezvous;  // the rendezvous that this connection waits in; empty: none
    Deadline idle_end = Deadline::In(absl::ZeroDuration());
  };
  struct Rendezvous {
    int32_t size = 0;
    std::map<int32_t, std::pair<int, std::string>> joined;  // rank: connection, blob
    std::set<int32_t> left;                                 // ranks that joined and left
  };

  void Serve();
  void Accept();
  // Closes connections that have been idle too long.
  void EndIdle();
  // When to check again for idle connections.
  Deadline NextIdleEnd() const;
  // False: the connection has ended.
  bool Receive(int id, Connection& connection);
  bool Send(Connection& connection);
  void Handle(int id, Connection& connection, absl::string_view request);
  absl::Status HandleJoin(int id, Connection& connection, ControlReader& request);
  void EndRendezvous(const std::string& name);
  std::string MissingText(const std::string& name) const;
  void Drop(int id);

  static void Answer(Connection& connection, absl::string_view reply) {
    connection.out += ControlWriter().Bytes(reply).Take();
  }

  const Descriptor listener_;
  const std::string address_;
  const Status status_;
  const Limits limits_;
  const Descriptor stop_;
  // Members below are used only by the server's thread.
  int next_id_ = 0;
  Deadline accept_again_ = Deadline::In(absl::ZeroDuration());
  std::map<int, Connection> connections_;
  std::map<std::string, Rendezvous> all_rendezvous_;
  std::thread thread_;
};

void ControlServer::Impl::Serve() {
  while (true) {
    Deadline wake = NextIdleEnd();
    const bool accepts = accept_again_.Expired();
    if (!accepts) wake = Deadline::Earlier(wake, accept_again_);
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0},
                                   {accepts ? listener_.get() : -1, POLLIN, 0}};
    std::vector<int> ids;
    for (const auto& [id, connection] : connections_) {
      const auto events = static_cast<int16_t>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT);
      entries.push_back({connection.fd.get(), events, 0});
      ids.push_back(id);
    }
    const int64_t ms =
        absl::ToInt64Milliseconds(absl::Ceil(wake.Remaining(), absl::Milliseconds(1)));
    const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(ms));
    if (ready < 0 && errno != EINTR) return;
    if (ready >= 0 && entries[0].revents != 0) return;
    if (ready >= 0 && entries[1].revents != 0) Accept();
    for (size_t i = 0; ready > 0 && i < ids.size(); ++i) {
      const int16_t events = entries[i + 2].revents;
      if (events == 0) continue;
      Connection& connection = connections_.at(ids[i]);
      connection.idle_end = Deadline::In(limits_.idle);
      const bool readable = (events & (POLLIN | POLLHUP | POLLERR)) != 0;
      if (!(readable ? Receive(ids[i], connection) : Send(connection))) Drop(ids[i]);
    }
    // After the requests that have arrived, even if this process was stopped for longer.
    EndIdle();
  }
}

void ControlServer::Impl::Accept() {
  Descriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    // Pause, because poll would report the connection again at once.
    LOG_EVERY_T(WARNING, 1) << address_ << ": accept: " << std::strerror(errno);
    accept_again_ = Deadline::In(kAcceptPause);
    return;
  }
  if (connections_.size() >= limits_.connections) {
    LOG_EVERY_T(WARNING, 1) << address_ << ": closing a connection: " << limits_.connections
                            << " are open, which is the limit";
    return;
  }
  Connection& connection = connections_[next_id_++];
  connection.fd.Reset(fd.Release());
  connection.idle_end = Deadline::In(limits_.idle);
}

void ControlServer::Impl::EndIdle() {
  std::vector<int> idle;
  for (const auto& [id, connection] : connections_) {
    const bool joined = !connection.rendezvous.empty();  // it waits for other ranks
    if (!joined && connection.idle_end.Expired()) idle.push_back(id);
  }
  for (const int id : idle) Drop(id);
}

Deadline ControlServer::Impl::NextIdleEnd() const {
  Deadline next = Deadline::In(limits_.idle);
  for (const auto& [id, connection] : connections_) {
    if (connection.rendezvous.empty()) next = Deadline::Earlier(next, connection.idle_end);
  }
  return next;
}

bool ControlServer::Impl::Receive(int id, Connection& connection) {
  char buffer[16384];
  const ssize_t got = ::recv(connection.fd.get(), buffer, sizeof(buffer), 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  connection.in.append(buffer, static_cast<size_t>(got));
  while (connection.in.size() >= sizeof(uint32_t)) {
    const auto size = ControlReader(connection.in).Value<uint32_t>();
    if (size > kMaxControlRequestBytes) return false;
    if (connection.in.size() < sizeof(uint32_t) + size) break;
    const std::string request = connection.in.substr(sizeof(uint32_t), size);
    connection.in.erase(0, sizeof(uint32_t) + size);
    Handle(id, connection, request);
  }
  return Send(connection);
}

bool ControlServer::Impl::Send(Connection& connection) {
  if (connection.out.empty()) return true;
  const ssize_t sent = ::send(connection.fd.get(), connection.out.data(), connection.out.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.out.erase(0, static_cast<size_t>(sent));
  return true;
}

void ControlServer::Impl::Handle(int id, Connection& connection, absl::string_view request) {
  ControlReader reader(request);
  switch (static_cast<ControlOp>(reader.Value<uint8_t>())) {
    case ControlOp::kJoin: {
      const absl::Status status = HandleJoin(id, connection, reader);
      if (!status.ok()) Answer(connection, Reply(status));
      return;
    }
    case ControlOp::kMissing: Answer(connection, MissingText(reader.Bytes())); return;
    case ControlOp::kStatus: {
      const std::string told = reader.Bytes();
      Answer(connection, status_ ? status_(told) : "");
      return;
    }
  }
  Answer(connection, Reply(absl::InvalidArgumentError("unknown request; versions differ?")));
}

absl::Status ControlServer::Impl::HandleJoin(int id, Connection& connection,
                                             ControlReader& request) {
  const auto rank = request.Value<int32_t>();
  const auto size = request.Value<int32_t>();
  const std::string name = request.Bytes();
  std::string blob = request.Bytes();
  if (!request.ok() || !request.at_end() || size < 1 || rank < 0 || rank >= size ||
      static_cast<size_t>(size) > kMaxGlooRanks) {
    return InvalidArgument("rank ", rank, " of ", size, " cannot join; a group has 1 to ",
                           kMaxGlooRanks, " ranks, numbered from 0");
  }
  if (!connection.rendezvous.empty()) return absl::InvalidArgumentError("has joined already");
  if (all_rendezvous_.size() >= kMaxRendezvous && all_rendezvous_.count(name) == 0) {
    return ResourceExhausted(kMaxRendezvous,
                             " groups are joining here already, which is the limit");
  }
  Rendezvous& rendezvous = all_rendezvous_.try_emplace(name, Rendezvous{size, {}}).first->second;
  if (rendezvous.size != size) {
    return InvalidArgument("rank ", rank, " joins as one of ", size, ", others as ",
                           rendezvous.size, "; give every rank the same addresses");
  }
  if (!rendezvous.joined.emplace(rank, std::make_pair(id, std::move(blob))).second) {
    return InvalidArgument("another process has joined as rank ", rank,
                           "; give every rank its own number");
  }
  rendezvous.left.erase(rank);
  connection.rendezvous = name;
  if (rendezvous.joined.size() == static_cast<size_t>(size)) EndRendezvous(name);
  return absl::OkStatus();
}

void ControlServer::Impl::EndRendezvous(const std::string& name) {
  const auto node = all_rendezvous_.extract(name);
  ControlWriter blobs;
  blobs.Value(static_cast<int32_t>(absl::StatusCode::kOk));
  for (const auto& [rank, member] : node.mapped().joined) blobs.Bytes(member.second);
  const std::string reply = blobs.Take();
  for (const auto& [rank, member] : node.mapped().joined) {
    Connection& connection = connections_.at(member.first);
    connection.rendezvous.clear();
    connection.idle_end = Deadline::In(limits_.idle);
    Answer(connection, reply);
  }
}

std::string ControlServer::Impl::MissingText(const std::string& name) const {
  const auto rendezvous = all_rendezvous_.find(name);
  if (rendezvous == all_rendezvous_.end()) return "no rank has joined";
  const Rendezvous& found = rendezvous->second;
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < found.size; ++rank) {
    if (found.joined.count(rank) == 0 && found.left.count(rank) == 0) missing.push_back(rank);
  }
  std::string text = absl::StrJoin(missing, ",");
  if (found.left.empty()) return text;
  return absl::StrCat(text, "; ", absl::StrJoin(found.left, ","), " joined and left");
}

void ControlServer::Impl::Drop(int id) {
  const std::string name = connections_.at(id).rendezvous;
  connections_.erase(id);
  const auto rendezvous = all_rendezvous_.find(name);
  if (name.empty() || rendezvous == all_rendezvous_.end()) return;
  auto& joined = rendezvous->second.joined;
  for (auto it = joined.begin(); it != joined.end();) {
    const bool is_gone = it->second.first == id;
    if (is_gone) rendezvous->second.left.insert(it->first);
    it = is_gone ? joined.erase(it) : std::next(it);
  }
  if (joined.empty()) all_rendezvous_.erase(rendezvous);
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlServer::~ControlServer() = default;

const std::string& ControlServer::address() const { return impl_->address(); }

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& address,
                                                                    Status status) {
  return Start(address, std::move(status), Limits());
}

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(const std::string& address,
                                                                    Status status,
                                                                    const Limits& limits) {
  ASSIGN_OR_RETURN(Descriptor listener, ListenAt(address));
  Descriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (stop.get() < 0) {
    return ResourceExhausted("rendezvous server at ", address, ": eventfd: ", std::strerror(errno),
                             "; raise the limit of open files (ulimit -n)");
  }
  std::string at = ListenAddress(listener, address);
  auto impl = std::make_unique<Impl>(std::move(listener), std::move(stop), std::move(at),
                                     std::move(status), limits);
  RETURN_IF_ERROR(Annotate(impl->Start(), absl::StrCat("rendezvous server at ", address)));
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

namespace {

// "rank 1 (10.0.0.2:7101), rank 2 (10.0.0.3:7101); 3 joined and left".
std::string WithAddresses(const std::string& missing, absl::Span<const std::string> peers) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(missing, absl::MaxSplits("; ", 1));
  std::vector<std::string> texts;
  for (const absl::string_view number : absl::StrSplit(parts.first, ',', absl::SkipEmpty())) {
    int rank = 0;
    const bool known =
        absl::SimpleAtoi(number, &rank) && rank >= 0 && static_cast<size_t>(rank) < peers.size();
    texts.push_back(known ? RankText(rank, peers[static_cast<size_t>(rank)]) : std::string(number));
  }
  const std::string text = absl::StrJoin(texts, ", ");
  return parts.second.empty() ? text : absl::StrCat(text, "; ", parts.second);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Join(const std::string& address, const std::string& name,
                                              int rank, absl::Span<const std::string> peers,
                                              const std::string& blob, Deadline deadline) {
  const auto size = static_cast<int32_t>(peers.size());
  const std::string request = ControlWriter()
                                  .Value(ControlOp::kJoin)
                                  .Value(static_cast<int32_t>(rank))
                                  .Value(size)
                                  .Bytes(name)
                                  .Bytes(blob)
                                  .Take();
  // Keeps the rest of the deadline for finding the missing ranks.
  const absl::Duration for_asking = std::min(absl::Milliseconds(500), deadline.Remaining() / 5);
  const Deadline waited = Deadline::In(deadline.Remaining() - for_asking);
  const std::string who = absl::StrCat("group '", name, "', rank ", rank, " of ", size, ": ");
  absl::StatusOr<std::string> missing = absl::UnavailableError("not asked");
  const auto ask_who_is_missing = [&] {  // while this rank is still joined
    missing =
        AskAt(address, ControlWriter().Value(ControlOp::kMissing).Bytes(name).Take(), deadline);
  };
  absl::StatusOr<std::string> reply = AskAt(address, request, waited, ask_who_is_missing);
  while (absl::IsUnavailable(reply.status()) && !waited.Expired()) {
    absl::SleepFor(kRetryPause);  // the server may start later than this rank
    reply = AskAt(address, request, waited, ask_who_is_missing);
  }
  if (!reply.ok()) {
    if (!missing.ok()) {
      return DeadlineExceeded(who, "no server answers at the rendezvous address ", address, " (",
                              reply.status().message(), "); rank 0 serves it: is rank 0 running?");
    }
    return DeadlineExceeded(who, "these ranks did not come to ", address, ": ",
                            WithAddresses(*missing, peers));
  }
  ControlReader reader(*reply);
  const auto code = static_cast<absl::StatusCode>(reader.Value<int32_t>());
  if (code != absl::StatusCode::kOk) return absl::Status(code, who + reader.Bytes());
  std::vector<std::string> blobs;
  blobs.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) blobs.push_back(reader.Bytes());
  if (!reader.ok()) return absl::InternalError(who + "a malformed answer from " + address);
  return blobs;
}

}  // namespace cairn
