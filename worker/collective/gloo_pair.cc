#include "worker/collective/gloo_pair.h"

#include <algorithm>
#include <utility>

#include "worker/collective/reduce_kernels.h"

namespace cairn {
namespace {

constexpr uint64_t kPairTag = 8;

// Shorter segments cost more in messages than they gain by adding up one while the next travels.
constexpr size_t kMinPairSegmentBytes = 256 << 10;

}  // namespace

// An input of `bytes` is divided into at most kSlots segments of this size; the last may be
// shorter.
size_t PairExchange::SegmentBytes(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t even = (bytes + kSlots - 1) / kSlots;
  return std::max(kMinPairSegmentBytes, (even + kAlignment - 1) / kAlignment * kAlignment);
}

PairExchange::PairExchange(GlooLink& link) : link_(link), memory_(new char[kMaxPairBytes]) {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    received_.emplace_back(link, memory_.get() + slot * kSlotBytes, kSlotBytes);
    Post(slot);
  }
}

void PairExchange::Post(size_t slot) { received_[slot].Post(other(), kPairTag, 0, kSlotBytes); }

void PairExchange::Send(ConstBuffer in) {
  // Gloo takes send memory as writable, but does not write it.
  sent_ = std::make_unique<GlooBuffer>(link_, const_cast<void*>(in.data), in.bytes());
  const size_t segment = SegmentBytes(in.bytes());
  for (size_t offset = 0; offset < in.bytes(); offset += segment) {
    sent_->Send(other(), kPairTag, offset, std::min(segment, in.bytes() - offset));
  }
}

const char* PairExchange::Receive() {
  const size_t slot = (first_slot_ + segments_received_++) % kSlots;
  received_[slot].AwaitReceived(other());
  return memory_.get() + slot * kSlotBytes;
}

void PairExchange::Sum(ConstBuffer in, MutableBuffer out, int divisor) {
  const size_t segment = SegmentBytes(in.bytes());
  for (size_t offset = 0; offset < in.bytes(); offset += segment) {
    const void* inputs[] = {static_cast<const char*>(in.data) + offset, Receive()};
    if (link_.rank() == 1) std::swap(inputs[0], inputs[1]);
    sent_->AwaitOneSent();  // `out` may be `in`
    void* output = static_cast<char*>(out.data) + offset;
    SumBuffers(in.dtype, inputs, {&output, 1},
               std::min(segment, in.bytes() - offset) / DTypeBytes(in.dtype), divisor);
  }
}

void PairExchange::Finish(size_t their_bytes) {
  const size_t segment = SegmentBytes(their_bytes);
  const size_t segments = (their_bytes + segment - 1) / segment;
  while (segments_received_ < segments) Receive();
  for (; segments_received_ > 0; --segments_received_) {
    Post(first_slot_);
    first_slot_ = (first_slot_ + 1) % kSlots;
  }
  if (sent_ != nullptr) sent_->AwaitSent();
  sent_ = nullptr;
}

}  // namespace cairn
