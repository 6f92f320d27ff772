#include "worker/collective/gloo_ring.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "worker/collective/reduce_kernels.h"

namespace cairn {
namespace {

constexpr uint64_t kDataTag = 16;

// Small enough that a segment is still in the cache when it is added up and sent on, and large
// enough to hide the cost of Gloo's three small messages for each segment.
constexpr int64_t kMinSegmentBytes = 128 << 10;
constexpr int64_t kMaxSegmentBytes = 1 << 20;
// The number of positions (below) by which posted receives and sends run ahead.
constexpr size_t kWindow = 4;
// The number of segments that are sent between two steps of one segment, while that segment is on
// its way.
constexpr int64_t kLag = 2;

// Rank r sends to r + 1 and receives from r - 1. Elements are divided into as many chunks as ranks,
// and chunks into segments. In step t < N - 1 rank r receives the sum of chunk r - 2 - t over all
// ranks from chunk + 1 to r - 1, and adds its own elements; after these steps chunk r is complete
// at rank r. In the next N - 1 steps the complete chunks go round.
//
// Each segment takes its steps independently, kLag segments apart, so that received data are sent
// on at once. The order of all (segment, step) is the same on every rank.
class Ring {
 public:
  // `scatter`: stop when chunk r is complete at rank r. Chunks have `chunk` elements.
  Ring(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor, int64_t chunk, bool scatter)
      : in_(in),
        out_(out),
        divisor_(divisor),
        rank_(link.rank()),
        size_(link.size()),
        chunk_(chunk),
        element_(DTypeBytes(in.dtype)),
        reduce_steps_(size_ - 1),
        steps_(scatter ? reduce_steps_ : 2 * reduce_steps_),
        segment_(SegmentElements()),
        received_(link.Scratch(kWindow * SegmentBytes())),
        // Gloo takes send memory as writable, but does not write it.
        in_memory_(link, const_cast<void*>(in.data), in.bytes()),
        out_memory_(link, out.data, out.bytes()),
        received_memory_(link, received_, kWindow * SegmentBytes()) {
    Schedule();
  }

  void Run();

 private:
  struct Position {
    int64_t segment;
    int step;
    // The position at which the sent data were received; -1: the data are this rank's input.
    int64_t source;
  };
  struct Piece {
    size_t offset;  // bytes
    size_t bytes;
  };

  size_t SegmentBytes() const { return static_cast<size_t>(segment_) * element_; }
  int64_t SegmentElements() const;
  void Schedule();
  // The part of a chunk in segment `segment`; may be empty.
  Piece PieceOf(int chunk, int64_t segment) const;
  Piece ReceivedAt(const Position& at) const { return PieceOf(ChunkAt(at.step, 1), at.segment); }
  Piece SentAt(const Position& at) const { return PieceOf(ChunkAt(at.step, 0), at.segment); }
  int ChunkAt(int step, int behind) const;
  int left() const { return (rank_ + size_ - 1) % size_; }
  int right() const { return (rank_ + 1) % size_; }

  void Post(size_t position);
  void Send(size_t position);
  void Complete(size_t position);

  const ConstBuffer in_;
  const MutableBuffer out_;
  const int divisor_;
  const int rank_;
  const int size_;
  const int64_t chunk_;
  const size_t element_;
  const int reduce_steps_;
  const int steps_;
  const int64_t segment_;
  char* const received_;  // kWindow segments
  GlooBuffer in_memory_;
  GlooBuffer out_memory_;
  GlooBuffer received_memory_;
  std::vector<Position> positions_;
};

int64_t Ring::SegmentElements() const {
  const auto element = static_cast<int64_t>(element_);
  const int64_t bytes =
      std::clamp(chunk_ * element / 4, kMinSegmentBytes, kMaxSegmentBytes) / element;
  return std::max<int64_t>(1, std::min(chunk_, bytes / 64 * 64));
}

void Ring::Schedule() {
  const int64_t segments = (chunk_ + segment_ - 1) / segment_;
  std::vector<int64_t> last(static_cast<size_t>(segments), -1);
  for (int64_t time = 0; time < segments + kLag * (steps_ - 1); ++time) {
    for (int step = 0; step < steps_; ++step) {
      const int64_t segment = time - kLag * step;
      if (segment < 0 || segment >= segments) continue;
      int64_t& source = last[static_cast<size_t>(segment)];
      positions_.push_back({segment, step, source});
      source = static_cast<int64_t>(positions_.size()) - 1;
    }
  }
}

int Ring::ChunkAt(int step, int behind) const {
  const int reduced = step < reduce_steps_ ? 1 + step : step - reduce_steps_;
  return (rank_ + 2 * size_ - reduced - behind) % size_;
}

Ring::Piece Ring::PieceOf(int chunk, int64_t segment) const {
  const int64_t begin = std::min(in_.count, chunk * chunk_ + segment * segment_);
  const int64_t end =
      std::min({in_.count, (chunk + 1) * chunk_, chunk * chunk_ + (segment + 1) * segment_});
  return {static_cast<size_t>(begin) * element_,
          static_cast<size_t>(std::max<int64_t>(0, end - begin)) * element_};
}

void Ring::Post(size_t position) {
  const Position& at = positions_[position];
  const Piece piece = ReceivedAt(at);
  if (piece.bytes == 0) return;
  if (at.step < reduce_steps_) {
    received_memory_.Post(left(), kDataTag, position % kWindow * SegmentBytes(), piece.bytes);
  } else {
    out_memory_.Post(left(), kDataTag, piece.offset, piece.bytes);
  }
}

void Ring::Send(size_t position) {
  const Position& at = positions_[position];
  const Piece piece = SentAt(at);
  if (piece.bytes == 0) return;
  (at.step == 0 ? in_memory_ : out_memory_).Send(right(), kDataTag, piece.offset, piece.bytes);
}

void Ring::Complete(size_t position) {
  const Position& at = positions_[position];
  const Piece piece = ReceivedAt(at);
  if (piece.bytes == 0) return;
  if (at.step >= reduce_steps_) {
    out_memory_.AwaitReceived(left());
    return;
  }
  received_memory_.AwaitReceived(left());
  const void* inputs[] = {received_ + position % kWindow * SegmentBytes(),
                          static_cast<const char*>(in_.data) + piece.offset};
  void* output = static_cast<char*>(out_.data) + piece.offset;
  SumBuffers(in_.dtype, inputs, {&output, 1}, piece.bytes / element_,
             at.step == reduce_steps_ - 1 ? divisor_ : 1);
}

void Ring::Run() {
  const size_t count = positions_.size();
  for (size_t p = 0; p < std::min(kWindow, count); ++p) Post(p);
  size_t next = 0;
  // Sends available data, at most kWindow positions ahead of `done` completed positions.
  const auto send_ready = [&](size_t done) {
    while (next < std::min(count, done + kWindow) &&
           positions_[next].source < static_cast<int64_t>(done)) {
      Send(next++);
    }
  };
  send_ready(0);
  for (size_t p = 0; p < count; ++p) {
    Complete(p);
    if (p + kWindow < count) Post(p + kWindow);
    send_ready(p + 1);
  }
  in_memory_.AwaitSent();
  out_memory_.AwaitSent();
}

}  // namespace

void RingAllReduce(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor) {
  const int64_t even = (in.count + link.size() - 1) / link.size();
  Ring(link, in, out, divisor, (even + 63) / 64 * 64, /*scatter=*/false).Run();
}

void RingReduceScatter(GlooLink& link, ConstBuffer in, MutableBuffer out, int divisor) {
  if (out.count == 0) return;
  const auto sums = std::make_unique<char[]>(in.bytes());
  Ring(link, in, {in.dtype, sums.get(), in.count}, divisor, out.count, /*scatter=*/true).Run();
  std::memcpy(out.data, sums.get() + static_cast<size_t>(link.rank()) * out.bytes(), out.bytes());
}

void ChainBroadcast(GlooLink& link, int root, MutableBuffer buffer) {
  const int size = link.size();
  const int place = (link.rank() - root + size) % size;
  const int left = (link.rank() + size - 1) % size;
  const int right = (link.rank() + 1) % size;
  GlooBuffer memory(link, buffer.data, buffer.bytes());
  const size_t segment = kMaxSegmentBytes;
  const size_t segments = (buffer.bytes() + segment - 1) / segment;
  const auto bytes = [&](size_t s) { return std::min(segment, buffer.bytes() - s * segment); };
  for (size_t s = 0; place > 0 && s < std::min(kWindow, segments); ++s) {
    memory.Post(left, kDataTag, s * segment, bytes(s));
  }
  for (size_t s = 0; s < segments; ++s) {
    if (place > 0) {
      memory.AwaitReceived(left);
      if (s + kWindow < segments) {
        memory.Post(left, kDataTag, (s + kWindow) * segment, bytes(s + kWindow));
      }
    }
    if (place < size - 1) memory.Send(right, kDataTag, s * segment, bytes(s));
  }
  memory.AwaitSent();
}

void DirectGather(GlooLink& link, const void* in, absl::Span<const size_t> bytes,
                  absl::Span<const bool> present, void* to) {
  const auto rank = static_cast<size_t>(link.rank());
  const auto arrives = [&](size_t r) { return r != rank && !present[r]; };
  size_t total = 0, largest = 0;
  for (size_t r = 0; r < bytes.size(); ++r) {
    total += bytes[r];
    if (arrives(r)) largest = std::max(largest, bytes[r]);
  }
  // Dropped bytes arrive in the same memory, one rank's after the other's.
  const bool drops = to == nullptr;
  const auto nowhere = std::make_unique<char[]>(drops ? largest : 0);
  GlooBuffer from_here(link, const_cast<void*>(in), bytes[rank]);
  GlooBuffer to_here(link, drops ? nowhere.get() : to, drops ? largest : total);
  size_t offset = 0;
  for (size_t r = 0; r < bytes.size() && !drops; ++r) {
    if (arrives(r)) to_here.Post(static_cast<int>(r), kDataTag, offset, bytes[r]);
    offset += bytes[r];
  }
  // Starts after its own number, so that ranks do not all send to rank 0 first.
  for (size_t k = 1; k < bytes.size() && !present[rank]; ++k) {
    from_here.Send(static_cast<int>((rank + k) % bytes.size()), kDataTag, 0, bytes[rank]);
  }
  for (size_t r = 0; r < bytes.size(); ++r) {
    if (!arrives(r)) continue;
    if (drops) to_here.Post(static_cast<int>(r), kDataTag, 0, bytes[r]);
    to_here.AwaitReceived(static_cast<int>(r));
  }
  from_here.AwaitSent();
}

}  // namespace cairn
