// Limits of the local transport (thrift/LOCAL.md), with their reasons; thrift/limits.h has the
// limits of messages and connections.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// Bytes of the ring for one direction, as clients create it. A power of two. Four pieces, so that
// one side writes while the other reads, and all of it stays in a second-level cache.
inline constexpr uint32_t kLocalRingBytes = 512 << 10;
// Ring sizes that a server accepts. Below the lowest a piece is not worth its descriptor; the
// highest bounds the memory that --max_connections rings pin.
inline constexpr uint32_t kMinLocalRingBytes = 64 << 10;
inline constexpr uint32_t kMaxLocalRingBytes = 4 << 20;
// Bytes of a ring that one descriptor announces, at most a quarter of the ring (tests/bench).
inline constexpr size_t kLocalPieceBytes = 128 << 10;
// A write of fewer bytes goes through the socket, in one system call.
inline constexpr size_t kLocalInlineBytes = 4 << 10;
// Bytes received from the socket that one side keeps for its reader while it waits for room.
inline constexpr size_t kLocalHeldBytes = 64 << 10;
// Bytes of a ticket: 128 bits cannot be guessed in the seconds for which a ticket is valid.
inline constexpr size_t kLocalTicketBytes = 16;
// Bytes of a server's reply to a refused opening.
inline constexpr uint32_t kLocalVerdictBytes = 1024;
// If the server has not accepted it after this long, a client falls back to TCP.
inline constexpr double kLocalConnectSeconds = 5;
// For this long after a failure, later connections do not try again.
inline constexpr double kLocalRetrySeconds = 60;

}  // namespace cairn
