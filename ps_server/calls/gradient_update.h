// One update of variables by gradients: every item is checked and prepared before any is applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps_server/core/cold_rows.h"
#include "ps_server/core/request_items.h"
#include "ps_server/core/row_access.h"
#include "ps_server/core/value_coding.h"
#include "thrift/cairn_types.h"

namespace cairn {

// The memory of one thread for preparing the items of an update, kept between requests.
class UpdateScratch {
 public:
  // True after an update that copied many gradients: their memory is charged to the budget until
  // this object is destroyed, and the budget must exist until then.
  bool is_charged() const { return hold_.bytes() > 0; }

 private:
  friend class GradientUpdate;

  // One item that has passed every check.
  struct PreparedItem {
    ItemTarget target;
    absl::Span<const std::byte> values;  // as pushed, in the variable's dtype
    const std::byte* gradient = nullptr;
    SortedRows rows;            // ROWS
    ColdFetch* cold = nullptr;  // KEYS
    int64_t pulled_version = -1;
  };

  struct ItemScratch {
    KeyGroups groups;
    ColdFetch cold;
    RowScratch rows;
    std::vector<std::byte> clipped;
  };

  ItemScratch& item(size_t i) {
    while (items_.size() <= i) items_.push_back(std::make_unique<ItemScratch>());
    return *items_[i];
  }

  MemoryHold hold_;  // destroyed after the memory that it is for
  std::vector<PreparedItem> prepared_;
  std::vector<std::unique_ptr<ItemScratch>> items_;
  std::vector<const HostedShard*> shards_;
  TableScratch table_;
};

// The items of one push, or the mean of a step's contributions.
// Thread safety: none; one thread uses it, while other updates may run.
class GradientUpdate {
 public:
  // The arguments outlive this object. `step`: the synchronous step that the items are the mean of
  // or a contribution to; 0: none. `last_pull`: what the worker's last pull found; may be null.
  GradientUpdate(const RowAccess& access, const std::vector<wire::PushItem>& items, int64_t step,
                 const PulledRows* last_pull, UpdateScratch& scratch)
      : access_(access), items_(items), step_(step), last_pull_(last_pull), scratch_(scratch) {}

  // Checks all items, then applies all of them; applies nothing if one is rejected. Fills in the
  // reply. NOT_FINITE by the server's policy; otherwise errors as the IDL says.
  // `touched`, unless null: set to what the update changed. That happens before any wait, after
  // which the scratch may hold another request's items.
  absl::Status Apply(const VariableMap& variables, const Origin& origin, wire::PushReply& reply,
                     TouchedParts* touched = nullptr);

  // Runs the checks of Apply alone, and fills in the reply of a push that is kept for its step.
  // False: the push is not finite and the policy is to skip it.
  absl::StatusOr<bool> Check(const VariableMap& variables, wire::PushReply& reply);
  // After Check returned true: the values of each item, in the variable's dtype.
  std::vector<absl::Span<const std::byte>> values() const;

 private:
  TouchedParts Touched() const;
  using PreparedItem = UpdateScratch::PreparedItem;
  using ItemScratch = UpdateScratch::ItemScratch;

  // Prepares all items. False as Check.
  absl::StatusOr<bool> PrepareAll(const VariableMap& variables, wire::PushReply& reply);
  absl::Status Prepare(const VariableMap& variables, size_t i);
  // The values of an item, decoded if they travelled in a compact format.
  absl::StatusOr<absl::Span<const std::byte>> ValuesOf(const wire::PushItem& item,
                                                       const ItemName& name,
                                                       const ItemTarget& target);
  // Sums repeated ids, and clips the norm if the variable asks for that and is whole on this
  // server.
  absl::Status PrepareGradient(const ItemName& name, ItemScratch& scratch, PreparedItem& item);
  // Charges the budget for copies of gradients, if all of this update have many bytes.
  absl::Status ChargeCopies(const ItemName& name, int64_t bytes);
  absl::Status CheckDistinct();
  // Fills in the current version of each item's shard, as if the item had not been applied.
  void FillVersions(const VariableMap& variables, wire::PushReply& reply) const;
  absl::Status AcquireRows(MemoryHold& hold);
  absl::Status ApplyItem(const PreparedItem& item, const Origin& origin, MemoryHold& hold,
                         wire::PushReply& reply);
  bool ApplyDense(const PreparedItem& item, const UpdateStep& step, const Origin& origin);

  const RowAccess& access_;
  const std::vector<wire::PushItem>& items_;
  const int64_t step_;
  const PulledRows* const last_pull_;
  UpdateScratch& scratch_;
  std::vector<DecodedValues> decoded_;
  int64_t copied_bytes_ = 0;
  bool finite_ = true;
  bool counted_ = false;  // the update raised a shard's update count
  std::string not_finite_item_;
};

// Applies the mean of a step's contributions. Each contribution passed every check when its worker
// pushed it.
absl::Status ApplyStepMean(const RowAccess& access, const VariableMap& variables,
                           const std::vector<wire::PushItem>& items, const Origin& origin);

}  // namespace cairn
