// Divides a push, pull or assign into one call per server, and combines the replies.
//
// Rows are grouped by server with a counting sort, O(n), in scratch memory that is reused between
// calls. Rows that are all on one server are neither sorted nor copied: the request refers to the
// caller's ids and values, and the reply is written to the caller's memory.
// Where a part combines repeats, the distinct keys are sorted, and every key of the caller has the
// number of its sorted row.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/key_index.h"
#include "worker/client/delivery/fan_out.h"
#include "worker/client/delivery/server_table.h"
#include "worker/client/plan/push_clip.h"
#include "worker/client/ps_client.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// A growing buffer without zero-filling. Thread safety: none.
template <typename T>
class ScratchArray {
 public:
  // `count` elements with unspecified contents, valid until the next Get.
  T* Get(size_t count) {
    if (count > capacity_) {
      data_.reset(new T[count]);  // may throw: capacity_ is then still that of data_
      capacity_ = count;
    }
    return data_.get();
  }
  size_t bytes() const { return capacity_ * sizeof(T); }

 private:
  size_t capacity_ = 0;
  std::unique_ptr<T[]> data_;
};

// Limits of one message, of all servers. Thread safety: every method may be called from several
// threads at once.
class PlanLimits {
 public:
  PlanLimits(int64_t max_message_bytes, int64_t max_items, int64_t max_ids)
      : max_items(max_items), max_ids(max_ids), max_message_bytes_(max_message_bytes) {}

  int64_t max_message_bytes() const { return max_message_bytes_.load(std::memory_order_relaxed); }
  // `bytes`: the limit of another server; 0: none.
  void LowerMessageBytes(int64_t bytes) {
    int64_t now = max_message_bytes();
    while (bytes > 0 && bytes < now && !max_message_bytes_.compare_exchange_weak(now, bytes)) {
    }
  }

  const int64_t max_items;
  const int64_t max_ids;

 private:
  std::atomic<int64_t> max_message_bytes_;
};

// Thread safety: none; each call takes a separate plan from the client's pool. All spans of sources
// and targets must stay valid until the call ends.
class DataPlan {
 public:
  DataPlan(const ServerTable& sessions, const PlanLimits& limits);

  // Clears the plan and releases its variables. Keeps up to 64 MiB of scratch memory.
  void Reset();

  // Add one part of a call; every AddPush and AddAssign comes before the first AddPull.
  // kInvalidArgument: as in PsClient. kResourceExhausted: the part is larger than a message.
  absl::Status AddPush(ClientVariablePtr variable, const PushSource& source);
  absl::Status AddAssign(ClientVariablePtr variable, const PushSource& source);
  absl::Status AddPull(ClientVariablePtr variable, const PullTarget& target);
  // Call after the last AddAssign: each server stores its part in one write.
  void AssignTogether() { together_ = true; }
  // Call after the last AddPush: sends the push to every server, as a contribution to `step`.
  void ContributeToAll(int64_t step, int64_t rows);
  // Call before the first AddPull: wave 0 gets a pull on every server, with `step` as its
  // DataCall::step.
  void PullFromAll(int64_t step);
  // Call after the last AddPull: the pulls begin training step `step`. `everywhere`: announce the
  // step also to servers without a pull.
  void BeginStep(int64_t step, bool everywhere);

  // The calls, in waves that must be run in order; at most one exchange for each server in a wave.
  // Wave 0 has all pushes and assigns. Call after the last Add.
  size_t WaveCount();
  absl::Span<Exchange* const> Wave(size_t wave);

  // Checks a reply and writes its rows to the caller's memory. Calls `staleness` for each pushed
  // shard. kInternal: the reply does not fit the request.
  absl::Status StoreReply(Exchange& exchange, absl::FunctionRef<void(int64_t)> staleness);
  // After every pulled row has been stored: copies rows to the repeats of their keys.
  void CopyRepeats();

  // Payload bytes of gradients, values and ids to send, and of values to receive. StoreReply lowers
  // the latter where only changed rows came.
  int64_t bytes_out() const { return bytes_out_; }
  int64_t bytes_in() const { return bytes_in_; }

 private:
  // The rows of one part, sorted by group. Group g has the rows [starts[g], starts[g + 1]).
  struct Sorted {
    ScratchArray<uint16_t> group;  // of each id
    ScratchArray<int64_t> ids;     // sorted
    ScratchArray<int32_t> order;   // order[j]: index of sorted row j in the caller's arrays
    ScratchArray<std::byte> rows;  // push: sorted values; pull: received rows
    std::vector<int64_t> starts;
    // Where repeats are combined: the distinct ids, order[d] is the sorted row of distinct id d,
    // and row[i] that of the caller's id i, of `count`.
    ScratchArray<int64_t> distinct;
    ScratchArray<int32_t> row;
    int64_t count = 0;
    size_t bytes() const {
      return group.bytes() + ids.bytes() + order.bytes() + rows.bytes() + distinct.bytes() +
             row.bytes();
    }
  };

  // A pull that combines repeats.
  struct Repeats {
    Sorted* sorted;
    absl::Span<std::byte> out;
    size_t row_bytes;
  };

  // The destination of a pulled item.
  struct PullDestination {
    const ClientVariable* variable = nullptr;
    size_t group = 0;
    bool value = true;  // not a slot
    ValueFormat format = ValueFormat::kPlain;
    std::byte* decoded = nullptr;    // memory to decode values of another format to
    std::byte* out = nullptr;        // if `order` is null the item's rows, in order; else row 0
    const int32_t* order = nullptr;  // row i of the item is row order[i] of out
    int64_t rows = 0;
    HeldValues::Shard* held = nullptr;  // describes the rows in `out`; empty until they arrive
    bool may_be_changes = false;        // the caller has a copy of the shard
    int64_t* updates = nullptr;         // PullTarget::updates
  };

  // An exchange and its contents. Reused by later calls, with the memory of its items.
  struct Slot : Exchange {
    size_t wave = 0;
    size_t pushes = 0, assigns = 0;
    std::vector<PullDestination> destinations;  // one per pull item
    int64_t out_bytes = 0;                      // size of the request
    int64_t in_bytes = 0;                       // size of the reply
    int64_t ids = 0;
  };

  // One item of a request, before it is encoded.
  struct RequestItem {
    const ClientVariable* variable;
    size_t group;
    Part part;
    absl::Span<const int64_t> ids;
    absl::Span<const std::byte> values;
    absl::string_view slot;
    ValueFormat format = ValueFormat::kPlain;
    double kept_fraction = 0;
    absl::Span<float> residual;
    int64_t updates = -1;
  };

  void Reach(int32_t server);
  Slot& NewSlot(int32_t server, size_t wave);
  // The server's exchange in wave 0, which takes pushes.
  Slot& FirstSlot(int32_t server);
  absl::Status CheckPart(const ClientVariable& variable, Part part, absl::Span<const int64_t> ids,
                         size_t value_bytes, absl::string_view what) const;
  // Bytes on the wire of `rows` rows.
  static size_t BytesOf(const PullDestination& destination, int64_t rows);
  static int64_t WidthOf(const ClientVariable& variable);
  absl::Status CheckRepeats(const ClientVariable& variable, bool combine_repeats,
                            absl::string_view what) const;
  absl::Status CheckHeld(const ClientVariable& variable, const PullTarget& target) const;
  ScratchArray<std::byte>& NextScratch();
  // Encodes the values of a push in its wire format, in scratch memory.
  absl::Span<const std::byte> Encode(const RequestItem& entry);
  absl::StatusOr<Sorted*> Sort(const ClientVariable& variable, absl::Span<const int64_t> ids,
                               bool combine_repeats);
  absl::Span<const int64_t> FindDistinct(absl::Span<const int64_t> ids, Sorted* sorted);
  // The source's values in the order of the sorted ids.
  const std::byte* SortValues(const ClientVariable& variable, const PushSource& source,
                              bool combine_repeats, Sorted& sorted);
  absl::Status AddUpdate(const ClientVariable& variable, const PushSource& source, bool assign);
  absl::Status PutUpdate(const RequestItem& entry, bool assign);
  absl::Status PutPull(const RequestItem& entry, PullDestination destination, std::byte* target);
  absl::Status PutPullItem(const RequestItem& entry, const PullDestination& destination,
                           std::byte* target);
  absl::Status StoreItem(const Exchange& exchange, const PullDestination& destination,
                         const wire::PulledItem& item);
  // Counts the rows of a reply that has only changed rows. False: the list of rows is invalid.
  static bool CountChanges(const PullDestination& destination, const wire::PulledItem& item,
                           int64_t* rows);
  // Writes the `rows` rows of an item to the caller's memory.
  absl::Status PlaceRows(const PullDestination& destination, const wire::PulledItem& item,
                         int64_t rows);
  void Finish();

  const ServerTable& sessions_;
  const PlanLimits& limits_;
  std::vector<ClientVariablePtr> variables_;  // used by this call
  std::deque<Slot> slots_;                    // the first used_ belong to this call
  size_t used_ = 0;
  std::vector<Slot*> first_;    // by server: wave 0; nullptr: none
  std::vector<Slot*> current_;  // by server: takes the next pull
  std::deque<Sorted> sorted_;
  size_t sorted_used_ = 0;
  KeyIndex index_;
  std::deque<ClippedPush> clipped_;  // of this call
  std::vector<Repeats> repeats_;
  std::deque<ScratchArray<std::byte>> encoded_;  // values encoded for the wire
  size_t encoded_used_ = 0;
  int64_t contribution_step_ = 0;  // > 0: wave 0 has only contributions to this step
  int64_t contribution_rows_ = 0;
  bool together_ = false;
  std::vector<Exchange*> waves_;
  std::vector<size_t> wave_ends_;
  int64_t bytes_out_ = 0;
  int64_t bytes_in_ = 0;
};

}  // namespace cairn
