// Every limit of the wire, with its reason and, where there is one, the flag that raises it. A call
// beyond one is refused before memory is allocated for it, with an error that names the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace cairn {

// One message (thrift/bulk_protocol.h)

// Bytes of a message, read by either side: --max_message_bytes of cairn-ps and cairn-worker. 1 GiB
// holds a step of a 256 M parameter dense model; larger variables are meant to be sharded.
inline constexpr int64_t kDefaultMaxMessageBytes = int64_t{1} << 30;
// Smallest and largest value of that flag: hello, describe and an error must fit; 64 GiB is beyond
// any machine whose memory budget could admit the message.
inline constexpr int64_t kLowestMaxMessageBytes = int64_t{1} << 20;
inline constexpr int64_t kHighestMaxMessageBytes = int64_t{1} << 36;
// Bytes of one payload: TBinaryProtocol counts them in a signed 32-bit integer.
inline constexpr int64_t kMaxPayloadBytes = (int64_t{1} << 31) - 1;
// Bytes of one string: names, cursors, positions, error texts; none of them comes near.
inline constexpr int64_t kMaxStringBytes = 64 << 10;
// Entries of one list or map: bucket_ps, the longest, has at most 65536.
inline constexpr int64_t kMaxContainerItems = 65536;
// Structs within structs: the deepest call (step, push, items, item) has 5; room for later fields.
inline constexpr int32_t kMaxNestingDepth = 16;
// Bytes of an error's text; more is cut. Leaves room for it and its frame in kMaxStringBytes.
inline constexpr size_t kMaxErrorTextBytes = 32 << 10;

// Memory charged against the server's budget for one decoded entry of a container, by the entry's
// wire type: at least the size of the largest C++ type of that kind (asserted in bulk_protocol.cc).
inline constexpr int64_t kStructChargeBytes = 768;
inline constexpr int64_t kStringChargeBytes = 64;
inline constexpr int64_t kMapEntryChargeBytes = 128;
inline constexpr int64_t kNumberChargeBytes = 16;
// Messages below this are not charged, so small calls touch nothing shared. With the default 1024
// connections that is 64 MiB at most.
inline constexpr int64_t kUnchargedMessageBytes = 64 << 10;
// A payload's memory is charged in steps as its bytes arrive: this first, then whatever is larger
// of what has arrived and kPayloadStepBytes. Announcing a payload without sending it pins 1 MiB.
inline constexpr int64_t kFirstPayloadStepBytes = 1 << 20;
inline constexpr int64_t kPayloadStepBytes = 64 << 20;
// Memory of payloads of this size and more goes back to the system when they are destroyed, except
// for up to kPooledPayloadBytes of the process, so that a steady flow of pushes does not pay for
// page faults. malloc would keep much more: 24 connections pushing 16 MiB each left 1.1 GiB.
inline constexpr int64_t kMappedPayloadBytes = 256 << 10;
inline constexpr int64_t kPooledPayloadBytes = 64 << 20;

// Connections (ps_server/net/listener.h)

// Open connections: --max_connections. Each has up to 64 KiB of uncharged memory, and, while a call
// of it waits (for other workers, memory, the disk, its peer), a thread.
inline constexpr int32_t kDefaultMaxConnections = 1024;
inline constexpr int32_t kHighestMaxConnections = 65536;  // Linux' usual limits of threads, files
// Seconds without progress inside a message before its connection is closed: --stall_seconds.
inline constexpr double kDefaultStallSeconds = 30;
inline constexpr double kLowestStallSeconds = 0.05;
inline constexpr double kHighestStallSeconds = 86400;
// Seconds a connection may rest between messages: --idle_seconds. Cairn's own clients call every
// few seconds and connect again when they have to; what rests longer is a peer that was forgotten.
inline constexpr double kDefaultIdleSeconds = 3600;
inline constexpr double kLowestIdleSeconds = 0.05;
inline constexpr double kHighestIdleSeconds = 86400.0 * 365;
// A message must arrive (or a reply be taken) at this mean rate, after stall_seconds of grace, so
// that a trickle of single bytes cannot hold memory for ever.
inline constexpr int64_t kLowestBytesPerSecond = 64 << 10;
// After a refusal the rest of the message is read and thrown away, up to this much and for this
// long, so that the peer reads the error instead of a connection reset.
inline constexpr int64_t kDrainBytes = 64 << 20;
inline constexpr double kDrainSeconds = 2;

// Calls that run at a time, those that wait not counted: --serving_threads. By default two a core,
// so that small calls are not held up by large ones, and this many at least.
inline constexpr int32_t kLeastDefaultServingThreads = 4;
inline constexpr int32_t kHighestServingThreads = 4096;
// Connections whose call has come and is not served yet: --max_queued_calls. One more call that
// moves rows is refused, and told when to come back. As many as one host may have connections by
// default; a job's workers that all call at one moment are fewer.
inline constexpr int32_t kDefaultMaxQueuedCalls = 512;
// A refused call is asked to stay away this long at most.
inline constexpr double kLongestRetryAfterSeconds = 1;

// Callers that have not proved who they are (thrift/security/)

// Seconds from accepting a connection to the end of its TLS handshake and, where that does not name
// the caller, its token: --handshake_seconds. A handshake takes milliseconds; ten seconds are some
// lost packets, and a machine that is busy.
inline constexpr double kDefaultHandshakeSeconds = 10;
inline constexpr double kLowestHandshakeSeconds = 0.05;
inline constexpr double kHighestHandshakeSeconds = 3600;
// Connections on the way to that: --max_handshakes. One more ends the oldest of them, so a flood of
// half-open ones cannot keep out a caller that answers within the time they need to push it out.
// Each has about 100 KiB.
inline constexpr int32_t kDefaultMaxHandshakes = 128;
inline constexpr int32_t kHighestMaxHandshakes = 65536;
// Open connections of one IP address: --max_connections_per_peer. Half of max_connections: one host
// cannot take all. A worker has one or two to each server.
inline constexpr int32_t kDefaultMaxConnectionsPerPeer = 512;
// Bytes received for one TLS handshake: a certificate chain has some KiB, OpenSSL's own limit for
// one message of it is 100 KiB.
inline constexpr int64_t kMaxHandshakeBytes = 256 << 10;
// Bytes of a message before the caller has authenticated itself: `authenticate` with a token.
inline constexpr int64_t kMaxUnprovenMessageBytes = 4 << 10;
// Bytes of a token. From 16, of what is drawn at random, guessing is hopeless; 512 is more than any
// program that makes tokens writes (a SHA-512 in hexadecimal has 128).
inline constexpr size_t kLowestTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 512;
// Bytes of the file of accepted tokens, and lines: every authentication compares with all of them.
inline constexpr int64_t kMaxTokenFileBytes = 1 << 20;
inline constexpr size_t kMaxTokens = 4096;

// What callers make by naming it (ps_server/base/quota.h)

// Jobs that a server keeps: --max_jobs. A server that many users share has some dozens. Where the
// limit is met, jobs without variables whose workers are away make room.
inline constexpr int32_t kDefaultMaxJobs = 1024;
// Workers that a server keeps, of all jobs together, those that are away included: --max_workers.
// Sixteen times the connections it has by default. Also bounds HelloRequest.expected_workers.
inline constexpr int32_t kDefaultMaxWorkers = 16384;
// Both charges times the highest values: 5.5 GiB, which only the memory budget then bounds.
inline constexpr int32_t kHighestMaxJobs = 65536;
inline constexpr int32_t kHighestMaxWorkers = 1 << 20;
// Memory charged against the server's budget for each: its structures with the longest names and
// positions (asserted in registry.cc). 88 MiB for the default limits.
inline constexpr int64_t kJobChargeBytes = 8 << 10;
inline constexpr int64_t kWorkerChargeBytes = 5 << 10;

// One request (ps_server/net/checked_service.h)

// Variables or shards named by one call: each costs a struct of a few hundred bytes; the largest
// models have some thousand variables.
inline constexpr int64_t kMaxItemsPerCall = 16384;
// Row numbers or keys in one call, all items together: the server sorts them, 16 bytes each, so
// this bounds its scratch memory to 256 MiB.
inline constexpr int64_t kMaxIdsPerCall = int64_t{1} << 24;
// How long a pull may ask to wait for other workers before it is answered with who is missing: a
// client asks again, so a longer wait gains nothing and would hold a connection.
inline constexpr double kMaxWaitSeconds = 60;
// Bytes of a moving table that a read answers, about: what a stripe has is not cut, so a reply may
// be longer by one stripe. Larger pieces gain no speed, and are held in memory three times.
inline constexpr int64_t kLeastMoveBytes = 64 << 10;
inline constexpr int64_t kMaxMoveBytes = 64 << 20;
// How long a move may turn updates away, at most: its mover may end meanwhile.
inline constexpr double kMaxHoldSeconds = 60;
// How often a worker tells each server how it is, whatever else it does (and before a third of its
// lease has passed): servers call one missing of which three in a row did not come. Others may wait
// for what it is to tell, or to send again to, a server that was restarted, while it waits
// elsewhere itself: so it notices.
inline constexpr double kHeartbeatSeconds = 0.4;
// Decisions in one call, and the contributions they name together. Workers carry the decisions of
// the steps that a server is behind; one that is further behind is told in several calls.
inline constexpr int64_t kMaxDecisionsPerCall = 4096;
inline constexpr int64_t kMaxContributionsPerCall = 16384;
// Ordinals of workers are below this one, under which the mean of a SYNC job's step t is applied as
// its sequence t: so watermarks tell which steps a stripe has.
inline constexpr int32_t kStepWorker = std::numeric_limits<int32_t>::max();
// Rows of one scan reply.
inline constexpr int32_t kMaxScanRows = 65536;
// Buckets of an embedding table: a bucket is a stripe, and BucketOfKey uses 16 bits.
inline constexpr int64_t kMaxBuckets = 65536;
// Servers of a cluster, those included that have left it.
inline constexpr int32_t kMaxServers = 1024;
inline constexpr int64_t kMaxAddressBytes = 512;  // "host:port"
// Axes of a shape, as in TensorFlow's and NumPy's dense kernels with room to spare.
inline constexpr int64_t kMaxAxes = 32;
// Bytes of names and of the opaque resume position, which is stored with every sequence.
inline constexpr int64_t kMaxJobNameBytes = 256;
inline constexpr int64_t kMaxVariableNameBytes = 512;
inline constexpr int64_t kMaxSlotNameBytes = 64;
inline constexpr int64_t kMaxTaskTypeBytes = 64;
inline constexpr int64_t kMaxOriginBytes = 256;
// What a worker says of itself is kept with its session: see kWorkerChargeBytes.
inline constexpr int64_t kMaxGoneServers = 64;
inline constexpr int64_t kMaxPositionBytes = 1024;
// Paths: Linux' PATH_MAX. A checkpoint's name is one component of a path.
inline constexpr int64_t kMaxPathBytes = 4096;
inline constexpr int64_t kMaxCheckpointNameBytes = 200;

}  // namespace cairn
