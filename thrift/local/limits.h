// Limits of the local transport (thrift/LOCAL.md), with their reasons; those of messages and
// connections are thrift/limits.h's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// Bytes of the ring of one direction. A power of two. What clients bring: four pieces, so that one
// side writes while the other reads, and all of it stays in a second-level cache.
inline constexpr uint32_t kLocalRingBytes = 512 << 10;
// What a server takes. Below the first a piece is not worth its descriptor; the last bounds what
// --max_connections of them pin.
inline constexpr uint32_t kLowestLocalRingBytes = 64 << 10;
inline constexpr uint32_t kHighestLocalRingBytes = 4 << 20;
// Bytes of a ring that one descriptor announces, at most a quarter of the ring (tests/bench).
inline constexpr size_t kLocalPieceBytes = 128 << 10;
// A write of fewer bytes goes through the socket, in one system call.
inline constexpr size_t kLocalInlineBytes = 4 << 10;
// Bytes of the socket that one side keeps for its reader while it waits for room itself.
inline constexpr size_t kLocalHeldBytes = 64 << 10;
// Bytes of a ticket: 128 bits are beyond guessing, in the seconds that one is good for.
inline constexpr size_t kLocalTicketBytes = 16;
// Bytes of a server's answer to an opening, where it says no.
inline constexpr uint32_t kLocalVerdictBytes = 1024;
// A client that is not let in after this long goes on over TCP.
inline constexpr double kLocalConnectSeconds = 5;
// After that, and for this long, its later connections do not try.
inline constexpr double kLocalRetrySeconds = 60;

}  // namespace cairn
