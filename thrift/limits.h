// Every limit of the wire, with its reason and the flag that changes it, if there is one. A call
// that exceeds a limit is refused before memory is allocated for it, with an error that names the
// limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace cairn {

// One message (thrift/bulk_protocol.h)

// Bytes of a message that either side reads: --max_message_bytes of cairn-ps.
// 1 GiB suffices for a step of a 256 M parameter dense model; larger variables should be sharded.
inline constexpr int64_t kDefaultMaxMessageBytes = int64_t{1} << 30;
// Smallest and largest value of --max_message_bytes. The smallest has room for hello, describe and
// an error. The largest exceeds the memory budget of any machine.
inline constexpr int64_t kMinMessageBytesLimit = int64_t{1} << 20;
inline constexpr int64_t kMaxMessageBytesLimit = int64_t{1} << 36;
// Bytes of one payload: TBinaryProtocol stores the length as a signed 32-bit integer.
inline constexpr int64_t kMaxPayloadBytes = (int64_t{1} << 31) - 1;
// Bytes of one string: names, cursors, positions, error texts; all are much shorter.
inline constexpr int64_t kMaxStringBytes = 64 << 10;
// Entries of one list or map: bucket_ps, the longest, has at most 65536.
inline constexpr int64_t kMaxContainerItems = 65536;
// Structs within structs: the deepest call (step, push, items, item) has 5; the rest is for later
// fields.
inline constexpr int32_t kMaxNestingDepth = 16;
// Bytes of an error's text; longer texts are cut. Text and frame fit into kMaxStringBytes.
inline constexpr size_t kMaxErrorTextBytes = 32 << 10;

// Memory charged to the server's budget for one decoded entry of a container, by the entry's wire
// type: at least the size of the largest C++ type of that kind (asserted in bulk_protocol.cc).
inline constexpr int64_t kStructChargeBytes = 768;
inline constexpr int64_t kStringChargeBytes = 64;
inline constexpr int64_t kMapEntryChargeBytes = 128;
inline constexpr int64_t kNumberChargeBytes = 16;
// Smaller messages are not charged, so that small calls touch no shared state. With the default
// 1024 connections that is at most 64 MiB.
inline constexpr int64_t kUnchargedMessageBytes = 64 << 10;
// A payload's memory is charged in steps as its bytes arrive: first this much, then the larger of
// the bytes received and kPayloadStepBytes. Announcing a payload without sending it pins 1 MiB.
inline constexpr int64_t kFirstPayloadStepBytes = 1 << 20;
inline constexpr int64_t kPayloadStepBytes = 64 << 20;
// Payload memory from this size on is mapped and goes back to the system when it is freed, except
// for what the process keeps for later payloads (thrift/payload_pool.h): kPooledPayloadBytes, and
// in a client what it has retained at most, less what it retains now. malloc would keep much more:
// 24 connections that push 16 MiB each left 1.1 GiB.
inline constexpr int64_t kMappedPayloadBytes = 32 << 10;
inline constexpr int64_t kPooledPayloadBytes = 64 << 20;

// Connections (ps_server/net/listener.h)

// Open connections: --max_connections. Each has up to 64 KiB of uncharged memory and, while its
// call waits (for other workers, memory, the disk, its peer), a thread.
inline constexpr int32_t kDefaultMaxConnections = 1024;
inline constexpr int32_t kMaxConnectionsLimit = 65536;  // Linux' usual limits of threads, files
// Seconds without progress within a message before its connection is closed: --stall_seconds.
inline constexpr double kDefaultStallSeconds = 30;
inline constexpr double kMinStallSeconds = 0.05;
inline constexpr double kMaxStallSeconds = 86400;
// Seconds that a connection may be idle between messages: --idle_seconds. Cairn's own clients call
// every few seconds and reconnect when necessary, so longer idle times mean an abandoned peer.
inline constexpr double kDefaultIdleSeconds = 3600;
inline constexpr double kMinIdleSeconds = 0.05;
inline constexpr double kMaxIdleSeconds = 86400.0 * 365;
// A message must arrive (or a reply be read) at this mean rate, after a grace period of
// stall_seconds, so that a trickle of single bytes cannot hold memory forever.
inline constexpr int64_t kMinBytesPerSecond = 64 << 10;
// After a refusal the rest of the message is read and discarded, up to this many bytes and seconds,
// so that the peer reads the error instead of a connection reset.
inline constexpr int64_t kDrainBytes = 64 << 20;
inline constexpr double kDrainSeconds = 2;

// Calls that run at once, without waiting calls: --serving_threads. The default is two per core, so
// that large calls do not delay small ones, and at least this many.
inline constexpr int32_t kMinDefaultServingThreads = 4;
inline constexpr int32_t kMaxServingThreads = 4096;
// Connections whose call has arrived but is not being served yet: --max_queued_calls. Beyond it,
// calls that move rows are refused with a time after which to retry. Equals the default number of
// connections per host, and exceeds the calls that a job's workers make at one moment.
inline constexpr int32_t kDefaultMaxQueuedCalls = 512;
// The longest time that a refused call is asked to wait.
inline constexpr double kMaxRetryAfterSeconds = 1;

// Callers that have not authenticated yet (thrift/security/)

// Seconds from accepting a connection to the end of its TLS handshake and, if the certificate does
// not identify the caller, its token: --handshake_seconds. A handshake takes milliseconds; ten
// seconds allow for some lost packets and a busy machine.
inline constexpr double kDefaultHandshakeSeconds = 10;
inline constexpr double kMinHandshakeSeconds = 0.05;
inline constexpr double kMaxHandshakeSeconds = 3600;
// Connections in this phase: --max_handshakes. One more ends the oldest of them, so a flood of
// half-open connections cannot keep out a caller that answers before they displace it. Each takes
// about 100 KiB.
inline constexpr int32_t kDefaultMaxHandshakes = 128;
inline constexpr int32_t kMaxHandshakesLimit = 65536;
// Open connections of one IP address: --max_connections_per_peer. Half of max_connections, so that
// one host cannot take all. A worker has one or two to each server.
inline constexpr int32_t kDefaultMaxConnectionsPerPeer = 512;
// Bytes received for one TLS handshake: a certificate chain has some KiB; OpenSSL's own limit for
// one handshake message is 100 KiB.
inline constexpr int64_t kMaxHandshakeBytes = 256 << 10;
// Bytes of a message before the caller has authenticated: `authenticate` with a token.
inline constexpr int64_t kMaxUnauthenticatedMessageBytes = 4 << 10;
// Bytes of a token. From 16 random bytes on, guessing is infeasible; 512 exceeds the tokens of any
// program that creates them (a SHA-512 in hexadecimal has 128).
inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 512;
// Bytes and lines of the file of accepted tokens: every authentication searches all lines.
inline constexpr int64_t kMaxTokenFileBytes = 1 << 20;
inline constexpr size_t kMaxTokens = 4096;

// Objects that callers create by naming them (ps_server/base/quota.h)

// Jobs that a server keeps: --max_jobs. A server that many users share has some dozens. At the
// limit, jobs without variables whose workers are away are dropped.
inline constexpr int32_t kDefaultMaxJobs = 1024;
// Workers that a server keeps, in all jobs together, including absent ones: --max_workers. Sixteen
// times the default number of connections. Also bounds HelloRequest.expected_workers.
inline constexpr int32_t kDefaultMaxWorkers = 16384;
// The highest values times their charges are 15.5 GiB, which only the memory budget then bounds.
inline constexpr int32_t kMaxJobsLimit = 65536;
inline constexpr int32_t kMaxWorkersLimit = 1 << 20;
// Memory charged to the server's budget for each: its structures with the longest names and
// positions (asserted in registry.cc). 248 MiB at the default limits.
inline constexpr int64_t kJobChargeBytes = 8 << 10;
inline constexpr int64_t kWorkerChargeBytes = 15 << 10;

// One request (ps_server/calls/check_request.h)

// Variables or shards that one call names. Each costs a struct of a few hundred bytes; the largest
// models have some thousand variables.
inline constexpr int64_t kMaxItemsPerCall = 16384;
// Row numbers or keys in one call, all items together. The server sorts them, 16 bytes each, so
// this bounds its scratch memory to 256 MiB.
inline constexpr int64_t kMaxIdsPerCall = int64_t{1} << 24;
// How long a pull may ask to wait for other workers before the server answers with the missing
// ones. A client retries, so a longer wait gains nothing and would hold a connection.
inline constexpr double kMaxWaitSeconds = 60;
// Approximate bytes of a moving table in the reply to a READ. Stripes are not split, so a reply may
// be longer by one stripe. Larger pieces are no faster, and are held in memory three times.
inline constexpr int64_t kMinMoveBytes = 64 << 10;
inline constexpr int64_t kMaxMoveBytes = 64 << 20;
// The longest time that a move may refuse updates, because its mover may die in the meantime.
inline constexpr double kMaxHoldSeconds = 60;
// Interval of a worker's heartbeats to each server, unless a third of its lease is shorter. After
// three missed heartbeats a server considers the worker missing. Heartbeats also notify a worker,
// even while it waits elsewhere, that a server has restarted and needs its state or a replay, for
// which others may be waiting.
inline constexpr double kHeartbeatSeconds = 0.4;
// Decisions in one call, and the contributions that they name together. Workers send a server the
// decisions of the steps that it lacks; if it lacks more, in several calls.
inline constexpr int64_t kMaxDecisionsPerCall = 4096;
inline constexpr int64_t kMaxContributionsPerCall = 16384;
// Workers have ordinals below this one. The mean of a SYNC job's step t is applied as sequence t of
// this ordinal, so that watermarks show which steps a stripe has applied.
inline constexpr int32_t kStepWorker = std::numeric_limits<int32_t>::max();
// Rows of one scan reply.
inline constexpr int32_t kMaxScanRows = 65536;
// Buckets of an embedding table: a bucket is a stripe, and BucketOfKey uses 16 bits.
inline constexpr int64_t kMaxBuckets = 65536;
// Servers of a cluster, including those that have left it.
inline constexpr int32_t kMaxServers = 1024;
inline constexpr int64_t kMaxAddressBytes = 512;  // "host:port"
// Axes of a shape; more than TensorFlow's and NumPy's dense kernels need.
inline constexpr int64_t kMaxAxes = 32;
// Bytes of names, of the texts with which a worker describes itself, and of a resume position,
// which is stored with every sequence.
inline constexpr int64_t kMaxJobNameBytes = 256;
inline constexpr int64_t kMaxVariableNameBytes = 512;
inline constexpr int64_t kMaxSlotNameBytes = 64;
inline constexpr int64_t kMaxTaskTypeBytes = 64;
inline constexpr int64_t kMaxOriginBytes = 256;
// A worker's vitals are kept with its session: see kWorkerChargeBytes.
inline constexpr int64_t kMaxGoneServers = 64;
// A client stores its record of kMaxServers servers beside the user's 512 bytes. Older servers
// accept 1,024 bytes in all.
inline constexpr int64_t kMaxPositionBytes = 6 << 10;
// Paths: Linux' PATH_MAX. A checkpoint's name is one component of a path.
inline constexpr int64_t kMaxPathBytes = 4096;
inline constexpr int64_t kMaxCheckpointNameBytes = 200;

}  // namespace cairn
