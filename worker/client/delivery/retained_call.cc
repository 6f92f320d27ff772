#include "worker/client/delivery/retained_call.h"

#include <cstring>
#include <memory>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "absl/time/clock.h"

namespace cairn {
namespace {

template <typename Item>
int64_t PayloadBytes(const std::vector<Item>& items) {
  int64_t bytes = 0;
  for (const Item& item : items) {
    bytes += static_cast<int64_t>(item.ids.size() + item.values.size());
  }
  return bytes;
}

// Payloads begin at multiples of a cache line, as those that own their memory.
constexpr size_t kAlignment = 64;

size_t AlignedSize(const Payload& payload) {
  return (payload.size() + kAlignment - 1) / kAlignment * kAlignment;
}

// A call whose payloads view one block of memory: a push of many tables has many small payloads.
struct OwningCall {
  DataCall call;
  Payload block;
};

#ifdef __SSE2__  // for which Highway has no functions

// Copies past the caches: a retained push is nearly never read again, and its memory was last used
// a snapshot ago, so the caches would first read what is overwritten, and lose what is in use.
// `to` is aligned to kAlignment. Call EndCopies before another thread may read it.
void Copy(const std::byte* from, size_t bytes, std::byte* to) {
  const size_t streamed = bytes / kAlignment * kAlignment;
  for (size_t at = 0; at < streamed; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  std::memcpy(to + streamed, from + streamed, bytes - streamed);
}
void EndCopies() { _mm_sfence(); }

#else

void Copy(const std::byte* from, size_t bytes, std::byte* to) { std::memcpy(to, from, bytes); }
void EndCopies() {}

#endif

template <typename Item>
void CopyItems(const std::vector<Item>& items, std::vector<Item>* copies, Payload* block) {
  size_t bytes = 0;
  for (const Item& item : items) bytes += AlignedSize(item.ids) + AlignedSize(item.values);
  *block = Payload::Uninitialized(bytes);
  std::byte* next = block->mutable_data();
  const auto copy = [&next](Payload* payload) {
    if (payload->size() == 0) return;
    Copy(payload->data(), payload->size(), next);
    const size_t size = AlignedSize(*payload);
    *payload = Payload::View(next, payload->size());
    next += size;
  };
  *copies = items;
  for (Item& item : *copies) {
    copy(&item.ids);
    copy(&item.values);
  }
  EndCopies();
}

}  // namespace

int64_t UpdateBytes(const DataCall& call) {
  return WithUpdate(call, [](const auto& update) { return PayloadBytes(update.items); });
}

int64_t RetainedBytes(const DataCall& call) {
  // For small pushes the record is larger than the payload.
  size_t bytes = sizeof(OwningCall) + sizeof(RetainedPart) + SequenceOf(call).position.size();
  bytes += WithUpdate(
      call, [](const auto& update) { return update.items.size() * sizeof(update.items.front()); });
  return static_cast<int64_t>(bytes) + UpdateBytes(call);
}

RetainedPart RetainPart(const DataCall& call) {
  auto owner = std::make_shared<OwningCall>();
  DataCall* const copy = &owner->call;
  if (call.kind == CallKind::kAssign) {
    copy->kind = CallKind::kAssign;
    copy->assign.sequence = call.assign.sequence;
    copy->assign.together = call.assign.together;
    copy->assign.__isset.together = call.assign.__isset.together;
    CopyItems(call.assign.items, &copy->assign.items, &owner->block);
  } else {
    copy->kind = CallKind::kPush;
    copy->request.push.sequence = call.request.push.sequence;
    copy->request.push.step = call.request.push.step;
    copy->request.push.rows = call.request.push.rows;
    CopyItems(call.request.push.items, &copy->request.push.items, &owner->block);
  }
  return {.sequence = SequenceOf(call).sequence,
          .bytes = RetainedBytes(call),
          .call = std::shared_ptr<DataCall>(std::move(owner), copy),
          .since = absl::Now()};
}

}  // namespace cairn
