// Cuts a push, pull or assign into one call per server, and puts the answers together again.
//
// Rows of one server's part are sorted together by a counting sort, O(n), in scratch memory that is
// reused from call to call. A part that lies on one server alone is neither sorted nor copied: the
// request views the caller's ids and values, the reply lands in the caller's memory. Where a part
// combines repeats, the distinct keys are sorted instead, and each of the caller's keys has the
// number of its sorted row.
#pragma once

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
#include "worker/client/ps_client.h"
#include "worker/client/routing/client_variable.h"

namespace cairn {

// Memory that grows and is not zero-filled. Thread safety: none.
template <typename T>
class ScratchArray {
 public:
  // `count` elements of unspecified content, valid until the next Get.
  T* Get(size_t count) {
    if (count > capacity_) {
      capacity_ = count;
      data_.reset(new T[capacity_]);
    }
    return data_.get();
  }
  size_t bytes() const { return capacity_ * sizeof(T); }

 private:
  size_t capacity_ = 0;
  std::unique_ptr<T[]> data_;
};

struct PlanLimits {
  int64_t max_message_bytes = 0;
  int64_t max_items = 0;
  int64_t max_ids = 0;
};

// Thread safety: none; each call takes a plan of its own from the client's pool. All spans of
// sources and targets stay valid until the call has ended.
class DataPlan {
 public:
  DataPlan(const ServerTable& sessions, const PlanLimits& limits);

  // Forgets the call before, and lets go of its variables. Memory is kept, up to some megabytes.
  void Reset();

  // kInvalidArgument as PsClient says; kResourceExhausted: more than a message may hold. All of a
  // push goes before the pulls.
  absl::Status AddPush(ClientVariablePtr variable, const PushSource& source);
  absl::Status AddAssign(ClientVariablePtr variable, const PushSource& source);
  absl::Status AddPull(ClientVariablePtr variable, const PullTarget& target);
  // After every AddPush: the push goes to every server, as a contribution to `step`.
  void ContributeToAll(int64_t step, int64_t rows);
  // Before any AddPull: wave 0 has a pull from every server; its DataCall::step is `step`.
  void PullFromAll(int64_t step);
  // After the last Add: the pulls begin training step `step`. `everywhere`: servers without a pull
  // are told so as well.
  void BeginStep(int64_t step, bool everywhere);

  // After the last Add: the calls, to be run wave by wave; a wave has one exchange a server. Pushes
  // and assigns are all in wave 0.
  size_t WaveCount();
  absl::Span<Exchange* const> Wave(size_t wave);

  // Checks a reply and moves what it holds to where it belongs. `staleness` gets those of pushes.
  // kInternal: the reply does not fit the request.
  absl::Status Land(Exchange& exchange, absl::FunctionRef<void(int64_t)> staleness);
  // After every pulled row has landed: copies rows to the repeats of their keys.
  void CopyRepeats();

  // Payload bytes of gradients, values and ids to send, and of values to be received; less once
  // they have landed, where only changes came.
  int64_t bytes_out() const { return bytes_out_; }
  int64_t bytes_in() const { return bytes_in_; }

 private:
  // Rows of one part, sorted by group. Group g has [starts[g], starts[g + 1]).
  struct Sorted {
    ScratchArray<uint16_t> group;  // of each id
    ScratchArray<int64_t> ids;     // sorted
    ScratchArray<int32_t> order;   // order[j]: index of sorted row j in the caller's arrays
    ScratchArray<std::byte> rows;  // push: values sorted; pull: where replies land
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

  // Where a pulled item goes.
  struct Landing {
    const ClientVariable* variable = nullptr;
    size_t group = 0;
    bool value = true;  // not a slot
    ValueFormat format = ValueFormat::kPlain;
    std::byte* decoded = nullptr;    // where values in another format are decoded to
    std::byte* out = nullptr;        // order == nullptr: the item's rows, in order; else row 0
    const int32_t* order = nullptr;  // row i of the item is row order[i] of out
    int64_t rows = 0;
    HeldValues::Shard* held = nullptr;  // of what is in `out`; empty until it lands
    bool may_be_changes = false;        // the caller has a copy
  };

  // An exchange and what it holds. Kept for later calls with its items' memory.
  struct Slot : Exchange {
    size_t wave = 0;
    size_t pushes = 0, assigns = 0;
    std::vector<Landing> landings;  // one per pull item
    int64_t out_bytes = 0;          // of the request
    int64_t in_bytes = 0;           // of the reply
    int64_t ids = 0;
  };

  // What one item of a request names and holds.
  struct Cut {
    const ClientVariable* variable;
    size_t group;
    Part part;
    absl::Span<const int64_t> ids;
    absl::Span<const std::byte> values;
    absl::string_view slot;
    ValueFormat format = ValueFormat::kPlain;
    double kept_fraction = 0;
    absl::Span<float> residual;
  };

  void Reach(int32_t server);
  Slot& NewSlot(int32_t server, size_t wave);
  // The server's exchange of wave 0, for pushes.
  Slot& FirstSlot(int32_t server);
  absl::Status CheckPart(const ClientVariable& variable, Part part, absl::Span<const int64_t> ids,
                         size_t value_bytes, absl::string_view what) const;
  // Of `rows` of the values as they travel.
  static size_t BytesOf(const Landing& landing, int64_t rows);
  static int64_t WidthOf(const ClientVariable& variable);
  absl::Status CheckRepeats(const ClientVariable& variable, bool combine_repeats,
                            absl::string_view what) const;
  absl::Status CheckHeld(const ClientVariable& variable, const PullTarget& target) const;
  ScratchArray<std::byte>& NextScratch();
  // The values of a push in its format, in scratch memory.
  absl::Span<const std::byte> Encode(const Cut& cut);
  absl::StatusOr<Sorted*> Sort(const ClientVariable& variable, absl::Span<const int64_t> ids,
                               bool combine_repeats);
  absl::Span<const int64_t> FindDistinct(absl::Span<const int64_t> ids, Sorted* sorted);
  // The source's values in the order of the sorted ids.
  const std::byte* SortValues(const ClientVariable& variable, const PushSource& source,
                              Sorted& sorted);
  absl::Status AddUpdate(const ClientVariable& variable, const PushSource& source, bool assign);
  absl::Status PutUpdate(const Cut& cut, bool assign);
  absl::Status PutPull(const Cut& cut, Landing landing, std::byte* target);
  absl::Status PutPullItem(const Cut& cut, const Landing& landing, std::byte* target);
  absl::Status LandItem(const Exchange& exchange, const Landing& landing,
                        const wire::PulledItem& item);
  // How many rows an answer with changes alone has.
  static bool CountChanges(const Landing& landing, const wire::PulledItem& item, int64_t* rows);
  // Writes an item's `rows` rows to where they belong.
  absl::Status PlaceRows(const Landing& landing, const wire::PulledItem& item, int64_t rows);
  void Finish();

  const ServerTable& sessions_;
  const PlanLimits& limits_;
  std::vector<ClientVariablePtr> variables_;  // of this call
  std::deque<Slot> slots_;                    // used_ of them belong to this call
  size_t used_ = 0;
  std::vector<Slot*> first_;    // by server: wave 0; nullptr: none
  std::vector<Slot*> current_;  // by server: the one that takes the next pull
  std::deque<Sorted> sorted_;
  size_t sorted_used_ = 0;
  KeyIndex index_;
  std::vector<Repeats> repeats_;
  std::deque<ScratchArray<std::byte>> encoded_;  // values that travel in another format
  size_t encoded_used_ = 0;
  int64_t contribution_step_ = 0;  // > 0: all of wave 0 are pushes
  int64_t contribution_rows_ = 0;
  std::vector<Exchange*> waves_;
  std::vector<size_t> wave_ends_;
  int64_t bytes_out_ = 0;
  int64_t bytes_in_ = 0;
};

}  // namespace cairn
