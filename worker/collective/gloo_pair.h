// All-reduce between two ranks whose inputs are of middle size: each sends its whole input to the
// other.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "worker/collective/buffer.h"
#include "worker/collective/gloo_link.h"

namespace cairn {

// Up to this size two ranks exchange their inputs. For larger inputs the ring, which halves the
// additions, is worth its second step.
inline constexpr size_t kMaxPairBytes = 1 << 20;

// The memory for the other rank's input is posted before a call begins. An input therefore travels
// without a message before it, and need not wait until the ranks have compared their calls.
// All methods throw GlooFailure. Thread safety: none; one thread uses it.
class PairExchange {
 public:
  // Posts the memory on `link`, which has two ranks. The memory is kMaxPairBytes, and a page of it
  // is used only once an input has needed it.
  explicit PairExchange(GlooLink& link);

  // Begins to send this rank's input: at most kMaxPairBytes, and valid until Finish.
  void Send(ConstBuffer in);
  // out = the sum of both ranks' inputs, divided by `divisor`. Both called Send with inputs of the
  // same dtype and count; `in` is this rank's, and may be `out`.
  void Sum(ConstBuffer in, MutableBuffer out, int divisor);
  // Ends a call: waits until this rank's input is sent and the other's received, summed or not, and
  // posts the memory again. `their_bytes`: of the other rank's input; 0: it did not call Send.
  void Finish(size_t their_bytes);

 private:
  static constexpr size_t kSlots = 4;
  static constexpr size_t kSlotBytes = kMaxPairBytes / kSlots;

  static size_t SegmentBytes(size_t bytes);
  int other() const { return 1 - link_.rank(); }
  void Post(size_t slot);
  // Waits for the next segment of the other rank's input; returns it.
  const char* Receive();

  GlooLink& link_;
  const std::unique_ptr<char[]> memory_;  // kSlots, used in turns
  std::deque<GlooBuffer> received_;       // by slot: a rank that leaves fails those still posted
  std::unique_ptr<GlooBuffer> sent_;      // the input of the running call; null: none
  size_t first_slot_ = 0;                 // of the running call's first segment
  size_t segments_received_ = 0;          // of the running call
};

}  // namespace cairn
