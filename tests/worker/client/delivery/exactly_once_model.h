// A model of one worker, two servers with two stripes each, and their disks, which is run through
// every order of events: deliveries, late answers, epochs cut at every write, crashes of either
// side, renewals, replays, resumption.
//
// The program's own code makes the decisions: the client's PushLedger and ChooseResumePoint, the
// server's Session, Watermarks and rules in ps_server/jobs/order_rules.h. The model adds the
// messages in flight, the contents of the disks, and the order of events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cairn::test {

// Rules to leave out: the test must find the resulting fault.
struct Mutations {
  bool no_fence = false;             // a server accepts pushes of older incarnations
  bool no_boot_check = false;        // … of callers that name an earlier boot
  bool no_after = false;             // … whose predecessor it lacks
  bool no_watermarks = false;        // … parts that a stripe has already applied
  bool no_known_numbers = false;     // … that are durable and whose watermarks are forgotten
  bool no_epoch_at_hello = false;    // hello's answer includes state that is not on disk
  bool publishes_unsynced = false;   // an epoch publishes before it syncs
  bool notes_late = false;           // an epoch notes sequences after it has taken the stripes
  bool counts_every_answer = false;  // the client accepts an answer from a boot that has ended
  bool frees_applied = false;        // … frees pushes that are applied but not durable
};

struct ModelOptions {
  // parts[i]: the stripes that push i + 1 touches, as bits 2 * server + stripe. At most three
  // pushes.
  std::vector<unsigned> parts;
  int server_crashes = 1, worker_crashes = 1;
  int in_flight = 1;  // messages in flight to a server, 1 or 2; also from earlier starts
  // True: like PsClient, which names the boot and `through`. False: a client that names neither and
  // relies on `after`.
  bool names_boot = true;
  Mutations mutations;
  size_t max_states = 20'000'000;
};

struct ModelResult {
  size_t states = 0;
  std::string violation;  // empty: none; otherwise the violation and the events that lead to it
};

ModelResult Explore(const ModelOptions& options);

}  // namespace cairn::test
