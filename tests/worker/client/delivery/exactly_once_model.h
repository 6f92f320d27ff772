// A model of one worker, two servers with two stripes each, and their disks, in which every order
// of events is tried: deliveries, late answers, epochs cut at every write, crashes of either side,
// renewals, replays, resumption.
//
// What is decided is decided by the program's own code: PushLedger and ChooseResumePoint of the
// client, Session, Watermarks and the rules of ps_server/jobs/order_rules.h of the server. The
// model has the rest: what is in flight, what a disk holds, and when things happen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::test {

// Leaving a rule out must be found.
struct Mutations {
  bool no_fence = false;             // a server takes pushes of older incarnations
  bool no_boot_check = false;        // … of callers that mean an earlier boot
  bool no_after = false;             // … whose predecessor it does not have
  bool no_watermarks = false;        // … parts that a stripe has
  bool no_known_numbers = false;     // … that are durable, whose watermarks are forgotten
  bool no_epoch_at_hello = false;    // hello answers with what is not on disk
  bool publishes_unsynced = false;   // an epoch publishes before it syncs
  bool notes_late = false;           // an epoch notes sequences after it has taken the stripes
  bool counts_every_answer = false;  // the client believes a boot that is gone
  bool frees_applied = false;        // … frees what is applied, not durable
};

struct ModelOptions {
  // parts[i]: stripes that push i + 1 touches; bit 2 * server + stripe. At most three pushes.
  std::vector<unsigned> parts;
  int server_crashes = 1, worker_crashes = 1;
  int in_flight = 1;  // messages to a server at a time, 1 or 2; also of starts that are gone
  // True: as PsClient, which names the boot and `through`. False: as a client that names neither
  // and relies on `after`.
  bool names_boot = true;
  Mutations mutations;
  size_t max_states = 20'000'000;
};

struct ModelResult {
  size_t states = 0;
  std::string violation;  // empty: none; else what is wrong, and the events that lead there
};

ModelResult Explore(const ModelOptions& options);

}  // namespace cairn::test
