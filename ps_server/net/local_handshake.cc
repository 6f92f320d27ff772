#include "ps_server/net/local_handshake.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "ps_server/engine/engine.h"
#include "thrift/local/local_stream.h"
#include "thrift/local/shared_rings.h"

namespace cairn {
namespace {

absl::StatusOr<LocalHandshake> Enter(LocalAcceptor& acceptor, Engine& engine, int fd,
                                     const std::string& peer, const LocalOpening& opening,
                                     const Descriptor& memory) {
  std::optional<TicketTable::Bearer> bearer =
      acceptor.tickets().Redeem(absl::string_view(opening.ticket.data(), opening.ticket.size()));
  if (!bearer.has_value()) {
    return absl::UnauthenticatedError(
        "the ticket was not issued by this server, was used, or has expired: say hello again");
  }
  if (memory.get() < 0) return absl::InvalidArgumentError("no memory descriptor was sent");
  ASSIGN_OR_RETURN(SharedRings rings, SharedRings::Adopt(memory.get(), opening.ring_bytes));
  ASSIGN_OR_RETURN(MessageMemory held,
                   MessageMemory::Acquire(engine, 2 * int64_t{opening.ring_bytes}));
  const std::string name = absl::StrCat(bearer->peer, " by ", peer);
  return LocalHandshake{
      std::move(held),
      {std::make_unique<LocalStream>(fd, std::move(rings), LocalStream::Side::kServer, name),
       std::move(bearer->guard), name}};
}

}  // namespace

absl::StatusOr<MessageMemory> MessageMemory::Acquire(Engine& engine, int64_t bytes) {
  RETURN_IF_ERROR(engine.AcquireMessage(bytes));
  return MessageMemory(&engine, bytes);
}

MessageMemory::~MessageMemory() {
  if (engine_ != nullptr) engine_->ReleaseMessage(bytes_);
}

absl::StatusOr<std::optional<LocalHandshake>> EnterLocally(LocalAcceptor& acceptor, Engine& engine,
                                                           int fd, const std::string& peer) {
  LocalOpening opening;
  Descriptor memory;
  ASSIGN_OR_RETURN(const LocalArrival arrival, ReceiveOpening(fd, &opening, &memory));
  if (arrival == LocalArrival::kNotYet) return std::nullopt;
  if (arrival == LocalArrival::kEnded) return absl::CancelledError("it has gone");
  ASSIGN_OR_RETURN(LocalHandshake entry, Enter(acceptor, engine, fd, peer, opening, memory));
  return std::optional<LocalHandshake>(std::move(entry));
}

}  // namespace cairn
