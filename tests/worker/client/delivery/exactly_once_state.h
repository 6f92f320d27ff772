// The states of the model in exactly_once_model.h, as plain bytes, so that they can be hashed and
// compared.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace cairn::test {

inline constexpr int kModelPushes = 3, kModelServers = 2, kModelStripes = 2;
inline constexpr int kInFlight = 2;  // messages in flight to a server

// A WorkerRecord; its sequence stands for the position.
struct ModelRecord {
  uint8_t incarnation, sequence, position;
};

struct ModelStripe {
  uint8_t watermark;
  uint8_t counted[kModelPushes];  // how often each push was applied; 2: twice or more
};

struct ModelDisk {
  ModelStripe stripes[kModelStripes];
  ModelRecord record;
};

// A push, or with `replay` a repeated one. sequence 0: none.
struct ModelMessage {
  uint8_t sequence, incarnation, boot, after, through, replay;
};

enum class Answer : uint8_t { kNone, kOk, kAnotherBoot, kTooEarly, kFenced };

struct ModelReply {
  Answer answer;
  uint8_t sequence, incarnation, asked_boot, boot, durable, applied, replay;
};

enum class EpochPhase : uint8_t { kIdle, kTaken, kWriting, kWritten };

struct ModelServer {
  uint8_t boot;
  // Session.
  ModelRecord durable;
  uint8_t incarnation, applied, position, through;
  // The stripes in memory; sets of stripes are bits.
  ModelStripe stripes[kModelStripes];
  uint8_t dirty, queued;
  // The push being applied, with its next stripe; and the messages in flight.
  ModelMessage applying;
  uint8_t next_stripe;
  ModelMessage incoming[kInFlight];
  ModelReply reply;
  // The running epoch: stripes noted, still to write, and written but not synced (in order).
  EpochPhase phase;
  uint8_t has_note, taken, published;
  ModelRecord noted;
  uint8_t write_count;
  uint8_t written_stripe[kModelStripes];  // index of write i
  ModelStripe written[kModelStripes];
  uint8_t record_written;
  ModelDisk synced;
};

enum class Renewal : uint8_t { kNone, kHello, kReplay };

// The client's knowledge of a server: PushLedger, and the progress of a renewal.
struct ModelLink {
  uint8_t boot, released, through, retained;  // bits of pushes
  uint8_t acknowledged;                       // the push in flight
  Renewal renewal;
  uint8_t new_boot, to_replay, hello_durable;
  // Of the first hello.
  uint8_t greeted, greeted_boot, greeted_durable, greeted_position;
};

struct ModelState {
  uint8_t incarnation;  // of the running worker
  uint8_t running;      // every server has answered hello
  uint8_t next;         // the push in flight
  uint8_t server_crashes, worker_crashes;
  ModelLink links[kModelServers];
  ModelServer servers[kModelServers];

  absl::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  bool operator==(const ModelState& other) const { return bytes() == other.bytes(); }
  template <typename H>
  friend H AbslHashValue(H hash, const ModelState& state) {
    return H::combine(std::move(hash), state.bytes());
  }
};
static_assert(alignof(ModelState) == 1, "no padding, so that bytes compare");

}  // namespace cairn::test
